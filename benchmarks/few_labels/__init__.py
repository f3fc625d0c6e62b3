"""Few labels on frozen features and on photographs: what the pool adds to the labels alone, and what it must never cost."""
