"""Others' methods at equal compute: FixMatch, OpenMatch and plain pseudo-labelling on our batches, networks and augmentation."""
