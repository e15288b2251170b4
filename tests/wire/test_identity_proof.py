"""A directory's incarnation is proved and named without being revealed."""

from __future__ import annotations

from hashlib import blake2b

from viewstamp.wire.identity_proof import fingerprint, hello_proof, identity_proof

CHALLENGE = bytes(16)


def test_a_proof_depends_on_incarnation_and_challenge() -> None:
    proofs = {
        identity_proof("8c21f0aa00000001", CHALLENGE),
        identity_proof("8c21f0aa00000002", CHALLENGE),
        identity_proof("8c21f0aa00000001", bytes(15) + b"\x01"),
    }
    assert len(proofs) == 3
    assert {len(proof) for proof in proofs} == {16}


def test_a_proof_never_changes_between_releases() -> None:
    assert identity_proof("8c21f0aa00000001", CHALLENGE).hex() == "75a29a9c0133c8345cabd923bb5c2220"


def test_a_fingerprint_is_short_and_does_not_hold_the_incarnation() -> None:
    assert fingerprint("8c21f0aa00000001") == "037dedda"
    assert fingerprint("\ud800") == fingerprint("?")  # Any HELLO can be printed.


def test_the_answer_to_a_challenge_is_never_the_proof_of_a_hello() -> None:
    """A node answers the challenge of every client. A peer that can prove its HELLO may read the log."""
    hello = {"cluster": "c", "node": "evil~1", "incarnation": "0" * 16, "address": "127.0.0.1:1"}
    proof = hello_proof("8c21f0aa00000001", hello)
    assert len(proof) == 32, "longer than the answer to any challenge"
    said = "\n".join(hello.values()).encode()
    assert identity_proof("8c21f0aa00000001", blake2b(said, digest_size=16).digest()) != proof
