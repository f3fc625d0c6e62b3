"""Kinds of files and folders that hold many pictures, a class each; what one picture may be is data/decoding.py's."""
