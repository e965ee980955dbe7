"""All randomness of the library: functions of (run key, purpose, round, window, identity).

A runner may execute a piece of work twice, or again after a failure. A draw that came out differently the
second time would be a second release. So there is no generator with a state anywhere: every random number
is a keyed hash of what it is for (specification, section 6), and drawing it again gives it again.
"""

from __future__ import annotations

import hashlib
import os
from itertools import pairwise

import numba as nb
import numpy as np
import numpy.typing as npt

from beam_dp.core.keys import Keys

RUN_KEY_BYTES = 32


class RunKey:
    """The secret from which a run's noise and sampling follow; as sensitive as the data.

    It is drawn when the pipeline is built and travels to the workers inside the pipeline. It never shows in
    a log, a report, display data or its own `repr`.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes):
        if not isinstance(secret, bytes) or len(secret) != RUN_KEY_BYTES:
            raise ValueError(f"run_key must be made of exactly {RUN_KEY_BYTES} bytes")
        self._secret = secret

    @classmethod
    def fresh(cls) -> RunKey:
        """Draw a new key from the operating system: the only kind to use on private data."""
        return cls(os.urandom(RUN_KEY_BYTES))

    @classmethod
    def from_seed(cls, seed: int) -> RunKey:
        """Derive a key from a number, for tests: whoever guesses the number can subtract the noise."""
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ValueError(f"seed must be an integer, got {seed!r}")
        return cls(hashlib.blake2b(b"seed:%d" % seed, digest_size=RUN_KEY_BYTES).digest())

    def derive(self, purpose: str, *, number: int = 0, window: bytes = b"") -> bytes:
        """Return the 32-byte key of one purpose in one round (`number`) and one window.

        Purposes are told apart by their length-prefixed text, so that no two of them share a key.
        """
        name = purpose.encode()
        message = b"%d:%s%d:%d:%s" % (len(name), name, number, len(window), window)
        return hashlib.blake2b(message, key=self._secret, digest_size=32).digest()

    def __repr__(self) -> str:
        return "RunKey(<secret>)"


def keyed_bits(keys: Keys, secret: bytes) -> npt.NDArray[np.uint64]:
    """Draw 128 uniform bits for each key: BLAKE2b of the key's bytes under `secret`.

    Used for noise, where the draw has to stand up to an attacker who chose the items.

    Returns:
        Shape (len(keys), 2): two words of 64 bits.
    """
    data = keys.data.tobytes()
    bounds = keys.offsets.tolist()
    blake2b = hashlib.blake2b
    digests = b"".join(
        blake2b(data[start:stop], key=secret, digest_size=16).digest() for start, stop in pairwise(bounds)
    )
    return np.frombuffer(digests, "<u8").astype(np.uint64, copy=False).reshape(-1, 2)


def placement_hash(keys: Keys, secret: bytes) -> npt.NDArray[np.uint64]:
    """Hash each key by SipHash-2-4 under the first 16 bytes of `secret`.

    Used to place keys in shards and to order a user's items. Neither affects the guarantee, which holds for
    any order chosen without looking at the noise; both are needed once an entry, hence the compiled loop.
    """
    k0, k1 = np.frombuffer(secret[:16], "<u8")
    return _siphash_2_4(keys.offsets, keys.data, k0, k1)


def shard_of(hashes: npt.NDArray[np.uint64], num_shards: int) -> npt.NDArray[np.int32]:
    """Return the shard of each hash: a monotone map of the upper 32 bits to 0..num_shards - 1."""
    upper = hashes >> np.uint64(32)
    return ((upper * np.uint64(num_shards)) >> np.uint64(32)).astype(np.int32)


@nb.njit(cache=True, nogil=True, inline="always")
def _rotate(x: np.uint64, bits: int) -> np.uint64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@nb.njit(cache=True, nogil=True)
def _sip_rounds(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, count: int
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    for _ in range(count):
        v0 += v1
        v1 = _rotate(v1, 13) ^ v0
        v0 = _rotate(v0, 32)
        v2 += v3
        v3 = _rotate(v3, 16) ^ v2
        v0 += v3
        v3 = _rotate(v3, 21) ^ v0
        v2 += v1
        v1 = _rotate(v1, 17) ^ v2
        v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


@nb.njit(cache=True, nogil=True)
def _siphash_2_4(
    offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], k0: np.uint64, k1: np.uint64
) -> npt.NDArray[np.uint64]:
    """SipHash-2-4 (Aumasson and Bernstein, 2012) of each ragged row; the tests hold its published vectors."""
    count = len(offsets) - 1
    hashes = np.empty(count, np.uint64)
    for row in range(count):
        start, stop = offsets[row], offsets[row + 1]
        v0 = k0 ^ np.uint64(0x736F6D6570736575)
        v1 = k1 ^ np.uint64(0x646F72616E646F6D)
        v2 = k0 ^ np.uint64(0x6C7967656E657261)
        v3 = k1 ^ np.uint64(0x7465646279746573)
        position = start
        while stop - position >= 8:
            word = np.uint64(0)
            for byte in range(8):
                word |= np.uint64(data[position + byte]) << np.uint64(8 * byte)
            v0, v1, v2, v3 = _sip_rounds(v0, v1, v2, v3 ^ word, 2)
            v0 ^= word
            position += 8
        word = np.uint64((stop - start) & 0xFF) << np.uint64(56)
        for byte in range(stop - position):
            word |= np.uint64(data[position + byte]) << np.uint64(8 * byte)
        v0, v1, v2, v3 = _sip_rounds(v0, v1, v2, v3 ^ word, 2)
        v0 ^= word
        v0, v1, v2, v3 = _sip_rounds(v0, v1, v2 ^ np.uint64(0xFF), v3, 4)
        hashes[row] = v0 ^ v1 ^ v2 ^ v3
    return hashes


@nb.njit(cache=True, nogil=True, inline="always")
def edge_priority(user_hash: np.uint64, item_hash: np.uint64) -> np.uint64:
    """Return the priority of a (user, item) pair: a mix (SplitMix64's finaliser) of two keyed hashes.

    For one user it is a bijection of the item's hash, so priorities tie only where item hashes do.
    """
    x = user_hash ^ item_hash
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
