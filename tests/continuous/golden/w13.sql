-- standard
SELECT DISTINCT
  _state.g0 AS item
FROM (
  SELECT
    _entered.g0 AS g0,
    CAST(COUNT(*) AS BIGINT) AS a0
  FROM (
    SELECT
      votes.item AS g0
    FROM votes AS votes
    WHERE
      votes.ts <= $t
  ) AS _entered
  GROUP BY
    _entered.g0
) AS _state
WHERE
  _state.a0 > 2

-- monotone
SELECT DISTINCT
  _state.g0 AS item
FROM (
  SELECT
    _entered.g0 AS g0,
    _entered._at AS _at,
    CAST(COUNT(*) OVER (PARTITION BY _entered.g0 ORDER BY _entered._at) AS BIGINT) AS a0
  FROM (
    SELECT
      votes.item AS g0,
      votes.ts AS _at
    FROM votes AS votes
    WHERE
      votes.ts <= $t
  ) AS _entered
) AS _state
WHERE
  _state.a0 > 2

-- incremental
SELECT DISTINCT
  _state.g0 AS item
FROM (
  SELECT
    _state.*
  FROM (
    SELECT
      _entered.g0 AS g0,
      _entered._at AS _at,
      CAST(COUNT(*) OVER (PARTITION BY _entered.g0 ORDER BY _entered._at) AS BIGINT) AS a0
    FROM (
      SELECT
        votes.item AS g0,
        votes.ts AS _at
      FROM votes AS votes
      WHERE
        votes.ts <= $t
        AND EXISTS(
          SELECT
            1
          FROM (
            SELECT DISTINCT
              votes_then1.item AS g0,
              votes_then1.ts AS _at
            FROM votes AS votes_then1
            WHERE
              votes_then1.ts <= $t AND $tau < votes_then1.ts
          ) AS _change
          WHERE
            votes.item IS NOT DISTINCT FROM _change.g0
        )
    ) AS _entered
  ) AS _state
  WHERE
    $tau < _state._at
) AS _state
WHERE
  _state.a0 > 2

-- The result is every row that the query returned at any instant, each row once.
-- The aggregates of a group change at each row of the group.
-- A group can give an equal row again, so delivered rows are remembered without end.
