"""The paper's step E: the loss is `eq3` in steps.py."""
