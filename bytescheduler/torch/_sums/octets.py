"""The bytes of tensors, and digests of them, by which workers compare values."""

import ctypes
import hashlib

import torch

__all__ = ["DIGEST_BYTES", "digest_of", "has_octets", "memory_of", "octets_of"]

DIGEST_BYTES = 8


def octets_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes as a vector of uint8 of the CPU; it shares memory where it can."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.contiguous().reshape(-1).view(torch.uint8).cpu()


def memory_of(octets: torch.Tensor) -> memoryview:
    """Return the bytes of a vector of uint8, which must stay alive."""
    memory = (ctypes.c_char * octets.numel()).from_address(octets.data_ptr())
    return memoryview(memory).cast("B")  # PyTorch may be without numpy


def has_octets(tensor: torch.Tensor) -> bool:
    """Return whether the elements of `tensor` are bytes in memory, one after the other."""
    if torch.nn.parameter.is_lazy(tensor) or tensor.layout is not torch.strided:
        return False
    is_plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return is_plain and not (tensor.is_meta or tensor.is_quantized or tensor.is_nested)


def digest_of(tensor: torch.Tensor) -> bytes:
    """Return a digest of a tensor's dtype, shape and bytes; strides make no difference.

    A tensor without octets has the digest of its class.
    """
    if not has_octets(tensor):
        kind = f"{type(tensor).__name__} {tensor.layout}"
        return hashlib.blake2b(kind.encode(), digest_size=DIGEST_BYTES).digest()
    kind = f"{tensor.dtype} {tuple(tensor.shape)}"
    digest = hashlib.blake2b(kind.encode(), digest_size=DIGEST_BYTES)
    octets = octets_of(tensor)
    if octets.numel():
        digest.update(memory_of(octets))
    return digest.digest()
