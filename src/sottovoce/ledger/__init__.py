"""Who has answered how often, and who may answer again.

| module | what it holds |
|---|---|
| `budget` | a budget, what was spent of it, whether another answer fits |
| `memory` | the ledgers of all clients of a simulation, as counts in memory |
| `file` | one data owner's ledger on disk; `chain` has its rows and hashes, `store` its SQLite table |
| `owner_ledgers` | the ledger files of the clients on this machine, for one run |
| `kept_answers` | the answers of a run, kept until it is over |
| `histories` | what one owner was charged, as it may leave the owner: in a run's folder, or in a message to a server |
| `charges` | all charges of one run |
| `split_key` | the key that decides which records an owner holds out |
| `fingerprint` | the hash of a data set by which a ledger knows it |

Ledgers count events (`privacy/events.py`), leave the meaning of the counts to `privacy/accounting/`, and refuse
*before* an answer is given.
"""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
