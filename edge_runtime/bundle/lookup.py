"""Bundle lookup: the installed bundle that fits a payload, where none is named.

Responsible for the folders of installed bundles and their order. Not responsible for payloads: callers pass
the payload's tag, the first digits of the contract's identity or of the model fingerprint.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from edge_runtime.bundle.bundle import BUNDLES, MANIFEST, bundle_folder, read_manifest, shipped_bundles
from edge_runtime.errors import BundleContractError, BundleMissingError, EdgeError, UsageError

MODEL_VARIABLE = "EDGE_MODEL"
FOLDERS_VARIABLE = "EDGE_BUNDLES"
SHIPPED = BUNDLES / "testbed-qwen"


def gateway_bundle(model: str | None) -> Path:
    """The bundle for a link's gateway, which does not say what it has: the one named, the only one installed,
    or the shipped one. Raises UsageError for several, and what `find_bundles` does.
    """
    found = find_bundles("", model)
    if len(found) > 1 and found[0] != SHIPPED:  # it comes after those that a user has installed
        names = ", ".join(sorted(path.name for path in found))
        raise UsageError(f"edge: expected the gateway's bundle (--edge), found several: {names}")
    return found[0]


def find_bundles(
    tag: str,
    model: str | None = None,
    environment: Mapping[str, str] = os.environ,
    shipped: Path = SHIPPED,
    *,
    by_fingerprint: bool = False,
    url: str = "URL",
) -> list[Path]:
    """Returns the folders of the bundles to try for a payload, best first: one per contract, at least one.

    tag:   first hex digits of the payload's contract identity; of its model fingerprint by_fingerprint.
    model: a folder or the name of an installed bundle; else the environment's EDGE_MODEL. A bundle named in
           either way is returned whatever its contract: decoding fails where it does not fit.
    url: of the service that has the bundle, for the error.
    Otherwise the installed bundles are tried: those in EDGE_BUNDLES (folders of bundles) or else in the
    user's data folder, then those in ./bundles, then those shipped with this package: `shipped`, and the
    others in its folder.

    Raises BundleMissingError or BundleContractError, which name what was looked for and where.
    """
    named = model or environment.get(MODEL_VARIABLE)
    if named:
        return [_named(named, environment)]
    fitting: dict[str, Path] = {}
    seen: list[str] = []
    for path in candidates(environment, shipped):
        try:
            manifest = read_manifest(path)
        except EdgeError as error:
            seen.append(f"  {path}: unusable: {error}")
            continue
        contract = manifest.contract
        if by_fingerprint:
            fits = manifest.variant_with_fingerprint(tag) is not None
            names = ", ".join(
                f"{manifest.fingerprint(name).hex()[:2]} of {name}" for name in manifest.variants
            )
            seen.append(f"  {path}: {names}")
        else:
            fits = contract.identity.startswith(tag)
            seen.append(f"  {path}: {contract}")
        if fits:
            fitting.setdefault(contract.identity, path)
    if not fitting:
        listing = "\n".join(seen) or f"  none, in {', '.join(str(p) for p in [*roots(environment), shipped])}"
        kind = "fingerprint" if by_fingerprint else "contract"
        raise BundleContractError(
            f"expected a bundle for the payload's {kind} {tag}..., found these {kind}s:\n{listing}\n"
            f"Name a bundle with --edge or {MODEL_VARIABLE}, or get the service's: "
            f"python -m edge_runtime.bundle get {url}"
        )
    return list(fitting.values())


def roots(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Folders whose subfolders are bundles; new ones are installed in the first."""
    given = environment.get(FOLDERS_VARIABLE)
    if given:
        found = [Path(part) for part in given.split(os.pathsep) if part]
    else:
        home = environment.get("XDG_DATA_HOME")
        data = Path(home) if home else Path.home() / ".local" / "share"
        found = [data / "inverse-speculation" / "bundles"]
    return [*found, Path("bundles")]


def candidates(environment: Mapping[str, str] = os.environ, shipped: Path = SHIPPED) -> list[Path]:
    """The bundles that are there, in the order in which they are looked up: installed, then shipped."""
    # Hidden ones are being installed.
    found = [path for root in roots(environment) for path in sorted(root.glob("[!.]*"))]
    others = sorted(path.parent for path in shipped.parent.glob(f"*/{MANIFEST}"))
    return [path for path in dict.fromkeys([*found, shipped, *others]) if (path / MANIFEST).is_file()]


def _named(name: str, environment: Mapping[str, str]) -> Path:
    if Path(name).exists():
        return Path(name)
    places = [root / name for root in roots(environment)]
    for place in places:
        if place.is_dir():
            return place
    shipped = bundle_folder(name)
    if shipped.is_dir():
        return shipped
    names = dict.fromkeys([*(path.name for path in candidates(environment)), *shipped_bundles()])
    raise BundleMissingError(
        f"{name}: expected the folder or the name of a model bundle, found neither; names are "
        f"{', '.join(names)} (also looked at {', '.join(map(str, places))})"
    )
