-- standard
SELECT DISTINCT
  _state.g0 AS item
FROM (
  SELECT
    _state.*,
    ROW_NUMBER() OVER (ORDER BY _state.a0 DESC, _state.g0 ASC) AS _place
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
) AS _state
WHERE
  _state._place <= 1

-- monotone
SELECT DISTINCT
  _state.g0 AS item
FROM (
  SELECT
    _state.*,
    ROW_NUMBER() OVER (PARTITION BY _state._at ORDER BY _state.a0 DESC, _state.g0 ASC) AS _place
  FROM (
    SELECT
      _entered.g0 AS g0,
      _entered._at AS _at,
      CAST(COUNT(*) AS BIGINT) AS a0
    FROM (
      SELECT
        votes.item AS g0,
        _change._at AS _at
      FROM votes AS votes
      CROSS JOIN (
        SELECT DISTINCT
          votes_then1.ts AS _at
        FROM votes AS votes_then1
        WHERE
          votes_then1.ts <= $t
      ) AS _change
      WHERE
        votes.ts <= _change._at
    ) AS _entered
    GROUP BY
      _entered.g0,
      _entered._at
  ) AS _state
) AS _state
WHERE
  _state._place <= 1

-- incremental
SELECT DISTINCT
  _state.g0 AS item
FROM (
  SELECT
    _state.*,
    ROW_NUMBER() OVER (PARTITION BY _state._at ORDER BY _state.a0 DESC, _state.g0 ASC) AS _place
  FROM (
    SELECT
      _entered.g0 AS g0,
      _entered._at AS _at,
      CAST(COUNT(*) AS BIGINT) AS a0
    FROM (
      SELECT
        votes.item AS g0,
        _change._at AS _at
      FROM votes AS votes
      CROSS JOIN (
        SELECT DISTINCT
          votes_then1.ts AS _at
        FROM votes AS votes_then1
        WHERE
          votes_then1.ts <= $t AND $tau < votes_then1.ts
      ) AS _change
      WHERE
        votes.ts <= _change._at
    ) AS _entered
    GROUP BY
      _entered.g0,
      _entered._at
  ) AS _state
) AS _state
WHERE
  _state._place <= 1

-- The result is every row that the query returned at any instant, each row once.
-- The aggregates of a group change at each row of the group.
-- Groups of equal order are in the order of GROUP BY, NULL last.
-- A group can give an equal row again, so delivered rows are remembered without end.
