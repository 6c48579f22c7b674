"""Record descriptors: the XML of MDDS (Listing 1 of its paper), and the same as TOML. Text in, plain values out; no I/O.

    <description typeid="…">                                  typeid = "…"
      <struct>                                                indexing-dimensions = ["pickup_latitude", "pickup_datetime"]
        <field name="medallion" type="char" array_len=33/>    [[struct]]
        …                                                     name = "medallion"
      </struct>                                               type = "char"
      <indexing-dimensions>                                   array_len = 33
        <field name="pickup_latitude"/>                       …
        <field name="pickup_datetime"/>

The listing is no well-formed XML: `array_len=33` has no quotes. They are put there before it is parsed. docs/commands.md says what each
part means to us.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa

from tidewheel.errors import SchemaError
from tidewheel.model.schema import nearest
from tidewheel.model.type_names import type_named

_TAG = re.compile(r"<[A-Za-z][^<>]*>")
_BARE = re.compile(r"""([\w-]+)\s*=\s*([^\s"'<>/]+)(?=[\s/>])""")
_QUOTED = re.compile(r"""("[^"]*"|'[^']*')""")

_FIELD = ("name", "type", "array_len")
_DIMENSION = ("name", "min", "max")


@dataclass(frozen=True, slots=True)
class Dimension:
    """A field that rows are looked up by; its bounds, if they are known."""

    name: str
    lo: float | None = None
    hi: float | None = None


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Fields in their order, and the dimensions in the order in which they are to be considered."""

    fields: tuple[tuple[str, pa.DataType], ...]
    dimensions: tuple[Dimension, ...]
    moments: tuple[str, ...]
    """The fields that are times."""


def read_descriptor(text: str, name: str) -> Descriptor:
    """A descriptor in either form; `name` is its file's, for errors and to tell the form by."""
    if name.lower().endswith(".toml") or not text.lstrip("\ufeff \r\n\t").startswith("<"):
        fields, dimensions = _from_toml(text, name)
    else:
        fields, dimensions = _from_xml(text, name)
    found = tuple(_field(one, name) for one in fields)
    names = [field for field, _ in found]
    if not found:
        raise SchemaError(f"{name} describes no field: there is nothing in its struct")
    for field in names:
        if names.count(field) > 1:
            raise SchemaError(f"{name} has two fields named {field!r}")
    known = tuple(_dimension(one, names, name) for one in dimensions)
    for one in known:
        if [other.name for other in known].count(one.name) > 1:
            raise SchemaError(f"{name} has the indexing dimension {one.name!r} twice")
    moments = tuple(field for field, type_ in found if pa.types.is_timestamp(type_) or pa.types.is_date(type_))
    return Descriptor(found, known, moments)


def _from_xml(text: str, name: str) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise SchemaError(f"{name} has a DOCTYPE: a descriptor has none, and nothing of it would be read")
    try:
        root = ElementTree.fromstring(_TAG.sub(_quoted, text.lstrip("\ufeff \r\n\t")))
    except ElementTree.ParseError as e:
        raise SchemaError(f"{name} is not XML: {e}") from None
    if root.tag != "description":
        raise SchemaError(f"{name} is not a record descriptor: it is a <{root.tag}>, not a <description>")
    _only(root.attrib, ("typeid",), "<description>", name)
    parts: dict[str, list[Mapping[str, Any]]] = {"struct": [], "indexing-dimensions": []}
    for part in root:
        if part.tag not in parts:
            raise SchemaError(f"{name}: a <description> has no <{part.tag}>.{nearest(str(part.tag), list(parts))}")
        for field in part:
            if field.tag != "field":
                raise SchemaError(f"{name}: a <{part.tag}> has <field>s, no <{field.tag}>")
            parts[part.tag].append(field.attrib)
    return parts["struct"], parts["indexing-dimensions"]


def _quoted(tag: re.Match[str]) -> str:
    """A tag with quotes around the values that lack them; what is quoted stays as it is."""
    return "".join(part if i % 2 else _BARE.sub(r'\1="\2"', part) for i, part in enumerate(_QUOTED.split(tag[0])))


def _from_toml(text: str, name: str) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise SchemaError(f"{name} is not TOML: {e}") from None
    _only(said, ("typeid", "struct", "indexing-dimensions"), "a descriptor", name)
    struct, dimensions = said.get("struct", []), said.get("indexing-dimensions", [])
    if not isinstance(struct, list) or not all(isinstance(one, dict) for one in struct):
        raise SchemaError(f"{name}: fields are written as [[struct]], each with name and type")
    if not isinstance(dimensions, list) or not all(isinstance(one, (str, dict)) for one in dimensions):
        raise SchemaError(f"{name}: indexing-dimensions is a list of names of fields")
    return struct, [{"name": one} if isinstance(one, str) else one for one in dimensions]


def _field(said: Mapping[str, Any], name: str) -> tuple[str, pa.DataType]:
    _only(said, _FIELD, "a field", name)
    field, type_name = said.get("name"), said.get("type")
    if not isinstance(field, str) or not isinstance(type_name, str):
        raise SchemaError(f"{name}: a field has a name and a type, not {dict(said)}")
    try:
        type_ = type_named(type_name)
    except SchemaError as e:
        raise SchemaError(f"{name}: field {field!r}: {e}") from None
    if "array_len" not in said:
        return field, type_
    try:
        length = int(said["array_len"])
    except (TypeError, ValueError):
        length = 0
    if length < 1:
        raise SchemaError(f"{name}: field {field!r}: array_len is a whole number of at least 1, not {said['array_len']!r}")
    return field, type_ if type_name.strip().lower() == "char" else pa.list_(type_, length)


def _dimension(said: Mapping[str, Any], fields: list[str], name: str) -> Dimension:
    _only(said, _DIMENSION, "an indexing dimension", name)
    field = said.get("name")
    if field not in fields:
        raise SchemaError(f"{name}: indexing dimension {field!r} is no field.{nearest(str(field), fields)} Fields: {', '.join(fields)}")
    try:
        lo, hi = (None if said.get(end) is None else float(said[end]) for end in ("min", "max"))
    except (TypeError, ValueError):
        raise SchemaError(f"{name}: min and max of indexing dimension {field!r} are numbers") from None
    if (lo is None) != (hi is None):
        raise SchemaError(f"{name}: indexing dimension {field!r} has one of min and max; it has both or none")
    return Dimension(str(field), lo, hi)


def _only(said: Iterable[str], known: tuple[str, ...], what: str, name: str) -> None:
    for one in said:
        if one not in known:
            raise SchemaError(f"{name}: {what} has no {one!r}.{nearest(one, list(known))} It has {', '.join(known)}")
