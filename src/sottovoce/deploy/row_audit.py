"""An auditor's look at an owner's rows: were those that it multiplied within their bounds?"""

from pathlib import Path

from sottovoce.core import check
from sottovoce.deploy import product_records
from sottovoce.deploy.node import Node
from sottovoce.deploy.wire import FORMAT, Ask, is_hex, read


def audited(file: Path, record: Path, key: str = "") -> list[str]:
    """Hold an owner's rows and seeds against what it signed, which another owner kept in `record`; what was found.

    Raises InvalidInput where they are not those of the signed masked table, or too long.

    Parameters
    ----------
    file
        The owner's own file, with its folder beside it.
    record
        `others.json` of another owner's records.
    key
        The owner's public key, 64 hex digits; "": as the other owner has it pinned.
    """
    node, sentences = Node(file), []
    for signed, signature, beside in product_records.signed_by(product_records.read(record), node.name):
        experiment = signed.experiment
        own_record = product_records.read(product_records.records_of(node.folder, experiment) / product_records.OWN)
        seeds = [
            str(each.get("seed", "")) for mine, _, each in product_records.signed_by(own_record, node.name)
            if (mine.agreed, mine.first, mine.second) == (signed.agreed, signed.first, signed.second)
        ]  # fmt: skip
        shown = len(seeds) == 1 and is_hex(seeds[0])
        check.require(shown, f"rows of {node.name}", "their owner must show the seed of its masks", experiment)
        asked = {name: own_record.get(name) for name in product_records.ASKED}
        pinned = key or str(beside.get("key", ""))
        check.require(is_hex(pinned), "record", "needs the owner's key, 64 hex digits")
        table = node.multiplied(read(Ask, asked | {"k": 1, "format": FORMAT}))
        product_records.check_rows(signed, signature, pinned, bytes.fromhex(seeds[0]), table)
        sentences.append(f"{signed.rows} rows of {node.name} are those that it signed in experiment {experiment}, "
                     "and within their bounds")  # fmt: skip
    check.require(bool(sentences), str(record), f"holds nothing that {node.name!r} signed")
    return sentences
