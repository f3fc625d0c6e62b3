"""The paper's sets by name."""
