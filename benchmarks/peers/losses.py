"""The terms of the losses, as functions of logits. The originals' values for fixed tensors are in tests/test_peers.py.

The one-vs-all head gives two logits a class, (n, 2, K): first outlier, then inlier.
"""

import torch
import torch.nn.functional as F

TINY = 1e-8  # inside the logarithms of OpenMatch's public code


def pseudo_label_loss(logits: torch.Tensor, labelling: torch.Tensor, threshold: float) -> torch.Tensor:
    """Cross-entropy to the class that `labelling` is sure of, the mean over all images, sure or not (FixMatch, eq. 4).

    For plain pseudo-labelling both are the same logits; no gradient goes to the labels.
    """
    p, y = labelling.detach().softmax(dim=1).max(dim=1)
    return (F.cross_entropy(logits, y, reduction="none") * (p >= threshold)).mean()


def one_vs_all_loss(heads: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """-log p(inlier of y) - min over the other classes of log p(outlier of it) (OpenMatch, eq. 1): the hardest negative."""
    outlier, inlier = (heads.softmax(dim=1) + TINY).log().unbind(dim=1)  # (n, K) each
    own = F.one_hot(y, heads.shape[2]).bool()
    return -inlier[own].mean() + (-outlier).masked_fill(own, 0).amax(dim=1).mean()


def open_entropy(heads: torch.Tensor) -> torch.Tensor:
    """The entropy of inlier against outlier, the mean over images and classes (OpenMatch, eq. 2)."""
    p = heads.softmax(dim=1)
    return -(p * (p + TINY).log()).sum(dim=1).mean()


def soft_consistency(heads: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The squared distance of the one-vs-all probabilities of two views, summed over the classes (OpenMatch, eq. 3)."""
    return (heads.softmax(dim=1) - other.softmax(dim=1)).square().sum(dim=(1, 2)).mean()
