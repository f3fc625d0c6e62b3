"""The paper's steps A to D, a file each; E is training/steps.py, and self_training.py is the loop."""
