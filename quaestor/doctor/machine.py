"""Checks of the installation: Python, the packages that Quaestor needs, its extras, Java for the grid."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Final

from packaging.requirements import Requirement

from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn
from quaestor.errors import ConfigurationError
from quaestor.settings import Settings

SUBJECT: Final = "packages"
_DISTRIBUTION: Final = "quaestor"
_SHOWN: Final = ("fastapi", "starlette", "pymongo", "redis")
_EXTRAS: Final = {
    "proxy": "quaestor proxy",
    "spark": "quaestor cluster, quaestor statistics",
    "otel": "the setting tracing",
    "text": "exact matching of $text",
    "geo": "exact matching of geographic queries",
    "decimal": "exact matching of trigonometry",
    "demo": "quaestor demo",
}


def examined(settings: Settings) -> list[Diagnosis]:
    """Diagnoses of the installation, for these settings."""
    return [*_packages(), *_extras(), *_java(settings)]


def missing(extra: str = "") -> list[str]:
    """Requirements of the package, or of one of its extras, that are not met here, in pip's notation. Raises
    PackageNotFoundError if Quaestor runs without having been installed."""
    requirements = []
    for text in metadata.requires(_DISTRIBUTION) or ():
        requirement = Requirement(text)
        marker = requirement.marker
        of_extra = marker is not None and "extra" in str(marker)
        if of_extra != bool(extra) or (marker is not None and not marker.evaluate({"extra": extra})):
            continue
        try:
            met = requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
        except metadata.PackageNotFoundError:
            met = False
        if not met:
            requirements.append(f"{requirement.name}{requirement.specifier}")
    return requirements


def _packages() -> Iterator[Diagnosis]:
    try:
        lacking = missing()
    except metadata.PackageNotFoundError:
        yield warn(
            SUBJECT,
            "Quaestor is on the path and was not installed, so its requirements are not known",
            "pip install quaestor",
        )
        return
    python = f"Python {platform.python_version()} ({sys.executable})"
    if lacking:
        needed = " ".join(f"'{requirement}'" for requirement in lacking)
        yield mend(SUBJECT, f"{python}: {', '.join(lacking)} missing, or in another version", f"pip install {needed}")
        return
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _SHOWN)
    yield ok(SUBJECT, f"{python}, quaestor {metadata.version(_DISTRIBUTION)}, {versions}")


def _extras() -> Iterator[Diagnosis]:
    try:
        lacking = {extra: missing(extra) for extra in _EXTRAS}
    except metadata.PackageNotFoundError:
        return
    there = [extra for extra, packages in lacking.items() if not packages]
    absent = [f"{extra} (for {_EXTRAS[extra]})" for extra, packages in lacking.items() if packages]
    sentence = f"extras that are installed: {', '.join(there) or 'none'}; that are not: {', '.join(absent) or 'none'}"
    yield ok(SUBJECT, sentence)


def _java(settings: Settings) -> Iterator[Diagnosis]:
    """Check of Java, which only the grid needs; with Redis the grid may run on this machine."""
    if settings.redis_url is None:
        return
    from quaestor.invalidation.grid.spark.home import JAVA_VERSIONS, require_java

    try:
        spark = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        yield ok("spark", "not installed here: quaestor cluster runs elsewhere, or pip install 'quaestor[spark]'")
        return
    try:
        yield ok("spark", f"Spark {spark}, Java {' or '.join(map(str, JAVA_VERSIONS))} at {require_java()}")
    except ConfigurationError as error:
        yield warn(
            "spark",
            f"Spark {spark}; {str(error).partition(':')[0]}: quaestor cluster does not run on this machine",
            "sudo apt-get install openjdk-17-jre-headless",
        )
