"""The claim of the paper on real pictures, at a size that two CPU cores can carry."""
