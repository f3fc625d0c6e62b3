"""What is special to pictures."""
