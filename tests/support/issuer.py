"""Token issuer with keys that a test changes."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

__all__ = ["AUDIENCE", "ISSUER", "Issuer"]

ISSUER, AUDIENCE = "https://login.example.org", "revstream"


@dataclass
class Issuer:
    """A token issuer; `place` is the file of its JWKS."""

    place: Path
    keys: dict[str, ec.EllipticCurvePrivateKey] = field(default_factory=dict)
    current: str = ""

    def __post_init__(self) -> None:
        self.rotate("first")

    def rotate(self, name: str, *, keep: bool = False) -> None:
        """Sign with another key from now on."""
        if not keep:
            self.keys.clear()
        self.keys[name] = ec.generate_private_key(ec.SECP256R1())
        self.current = name
        self.place.write_text(json.dumps(self.jwks()))

    def withdraw(self, name: str) -> None:
        """Remove a key from the JWKS."""
        del self.keys[name]
        self.place.write_text(json.dumps(self.jwks()))

    def jwks(self) -> dict[str, Any]:
        found = []
        for name, key in self.keys.items():
            shown = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
            found.append({**shown, "kid": name, "use": "sig"})
        return {"keys": found}

    def token(self, name: str = "ann", *, lasts_s: float = 600, **claims: Any) -> str:
        """Return a signed token; claims that are None are left out."""
        now = time.time()
        said = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": name,
            "iat": int(now),
            "exp": now + lasts_s,
            **claims,
        }
        body = {each: value for each, value in said.items() if value is not None}
        headers = {"kid": self.current}
        return jwt.encode(body, self.keys[self.current], algorithm="ES256", headers=headers)

    def options(self) -> list[str]:
        """Return the options for the command."""
        return [
            *("--jwt-keys", str(self.place), "--jwt-issuer", ISSUER),
            *("--jwt-audience", AUDIENCE, "--jwt-algorithms", "ES256", "--jwt-leeway-s", "0.001"),
        ]
