"""Grammar of statements for lark. Keywords have any case, and are names wherever no keyword is expected."""

from __future__ import annotations

from typing import Final

_RULES: Final = r"""
start: ";"* (statement (";"+ statement)* ";"*)?

?statement: create_type | create_dataset | create_feed | create_function | create_repetitive | create_continuous
    | create_broker | create_procedure | connect_feed | start_feed | stop_feed | subscribe | unsubscribe
    | change_subscription | move_subscriptions | balance | pause | resume | alter_channel | execute | drop | show
    | describe | explain | query

create_type: CREATE replace? TYPE name if_not_exists? AS openness? _columns_in_brackets
create_dataset: CREATE active? DATASET name "(" (columns | of_type) ")" openness? if_not_exists? _stored
_stored: PRIMARY KEY key partitions? retain?
create_feed: CREATE replace? FEED name if_not_exists? with
create_function: CREATE replace? FUNCTION name parameters if_not_exists? AS (body | python)
create_repetitive: CREATE replace? REPETITIVE push? CHANNEL name if_not_exists? USING name "@" number period option*
create_continuous: CREATE replace? CONTINUOUS push? CHANNEL name parameters if_not_exists? period option* _query_body
create_broker: CREATE replace? BROKER name if_not_exists? AT string with?
create_procedure: CREATE replace? PROCEDURE name parameters if_not_exists? "{" body "}" period?

connect_feed: CONNECT FEED name TO DATASET name apply? mode?
start_feed: START FEED name
stop_feed: STOP FEED name

subscribe: SUBSCRIBE TO name values (ON name | among) returning?
unsubscribe: UNSUBSCRIBE subscription FROM name
change_subscription: CHANGE SUBSCRIPTION subscription ON name (values to_broker? | to_broker)
move_subscriptions: CHANGE SUBSCRIPTIONS ON name of_channel? to_broker
balance: BALANCE CHANNEL name among?
pause: PAUSE _pausable
resume: RESUME _pausable
alter_channel: ALTER CHANNEL name SET (period | priority)
execute: EXECUTE name values
drop: DROP kind name if_exists?

show: SHOW (DATASETS | FEEDS | CHANNELS | BROKERS | FUNCTIONS | PROCEDURES | TYPES | SHARING)
    | SHOW (SUBSCRIPTIONS | RUNS) of_channel?
describe: DESCRIBE kind? name
explain: EXPLAIN analyze? (query | create_repetitive | create_continuous | CHANNEL name)
query: body

replace: OR REPLACE
if_not_exists: IF NOT EXISTS
if_exists: IF EXISTS
active: ACTIVE
openness: OPEN | CLOSED
push: PUSH
analyze: ANALYZE
kind: TYPE | DATASET | FEED | FUNCTION | CHANNEL | BROKER | PROCEDURE
_columns_in_brackets: "(" columns ")" | "{" columns "}"
columns: column ("," column)*
column: name ":"? type "?"?
of_type: name
key: name ("," name)*
partitions: PARTITIONS number
retain: RETAIN duration
with: WITH JSON
parameters: "(" (parameter ("," parameter)*)? ")"
parameter: name type?
type: NAME
body: BODY
python: PYTHON string
_query_body: "{" body "}" | AS body
period: PERIOD duration
?option: FROM (BEGINNING | NOW | string) -> from_start
    | (DISTINCT | UNSEEN) -> distinct
    | EVERY INSTANT -> every_instant
    | UNGROUPED -> ungrouped
    | priority
priority: PRIORITY (HIGH | NORMAL | LOW)
apply: APPLY FUNCTION name
mode: AS (INSERT | UPSERT | MERGE)
returning: RETURNING name
to_broker: TO name
of_channel: OF name
among: AMONG name ("," name)*
_pausable: (CHANNEL | BROKER | PROCEDURE) name | SUBSCRIPTION subscription ON name
subscription: STRING | IDENTIFIER | BOUND
duration: number unit -> counted | string -> iso | DURATION "(" string ")" -> iso
unit: SECONDS | MINUTES | HOURS | DAYS | WEEKS
values: "(" (_value ("," _value)*)? ")"
_value: string | signed | word | bound | point | moment | list
signed: SIGNED_NUMBER
word: TRUE | FALSE | NULL
bound: BOUND
point: POINT "(" signed "," signed ")"
moment: (DATETIME | TIMESTAMP) string | (DATETIME | TIMESTAMP) "(" string ")"
list: "[" (_value ("," _value)*)? "]"
name: NAME
number: NUMBER
string: STRING

NAME: /[A-Za-z_][A-Za-z0-9_]*+/
IDENTIFIER: /[A-Za-z0-9][A-Za-z0-9_-]*+/
BOUND: /\$[A-Za-z_][A-Za-z0-9_]*+/
NUMBER: /[0-9]++(?![.\w])/
SIGNED_NUMBER: /[+-]?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+(?![.\w])/
STRING: /'[^']*+(?:''[^']*+)*+'|"[^"]*+(?:""[^"]*+)*+"/
BODY: /\x01++(?:\n++\x01++)*+/
JSON: /\x02++(?:\n++\x02++)*+/
%ignore /[ \t\r\n\f]++/
"""

_SINGULAR: Final = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK")
_KEYWORDS: Final = (
    "ACTIVE ALTER AMONG ANALYZE APPLY AS AT BALANCE BEGINNING BROKER BROKERS CHANGE CHANNEL CHANNELS",
    "CLOSED CONNECT CONTINUOUS CREATE DATASET DATASETS DATETIME DESCRIBE DISTINCT DROP DURATION EVERY",
    "EXECUTE EXISTS EXPLAIN FALSE FEED FEEDS FROM FUNCTION FUNCTIONS HIGH IF INSERT INSTANT",
    "KEY LOW MERGE NORMAL NOT NOW NULL OF ON OPEN OR PARTITIONS PAUSE PERIOD",
    "POINT PRIMARY PRIORITY PROCEDURE PROCEDURES PUSH PYTHON REPETITIVE REPLACE RESUME RETAIN RETURNING RUNS",
    "SET SHARING SHOW START STOP SUBSCRIBE SUBSCRIPTION SUBSCRIPTIONS TIMESTAMP TO TRUE TYPE",
    "TYPES UNGROUPED UNSEEN UNSUBSCRIBE UPSERT USING WITH",
)
KEYWORDS: Final = frozenset(word for line in _KEYWORDS for word in line.split())
"""Keywords without the units of durations."""


def grammar() -> str:
    """Return the grammar, with a terminal for each keyword."""
    words = [rf"{word}.2: /{word}\b/i" for word in sorted(KEYWORDS)]
    units = [rf"{word}S.2: /{word}S?\b/i" for word in _SINGULAR]
    return "\n".join([_RULES, *words, *units])


_DESCRIBED: Final = {
    "NAME": "a name",
    "IDENTIFIER": "the id of a subscription",
    "BOUND": "$name",
    "NUMBER": "a number",
    "SIGNED_NUMBER": "a number",
    "STRING": "a string",
    "BODY": "a query",
    "JSON": "options as a JSON object",
    "LPAR": "'('",
    "RPAR": "')'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LSQB": "'['",
    "RSQB": "']'",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "COLON": "':'",
    "QMARK": "'?'",
    "__ANON_0": "'@'",
    "AT_SIGN": "'@'",
    "$END": "the end of the text",
}


def described(terminal: str) -> str:
    """Return a terminal for people."""
    return _DESCRIBED.get(terminal, terminal)
