-- standard
SELECT DISTINCT
  _state.g0 AS item,
  _state.a0 AS voters
FROM (
  SELECT
    _entered.g0 AS g0,
    CAST(COUNT(DISTINCT _entered.v0) AS BIGINT) AS a0,
    CAST(SUM(_entered.v1) AS BIGINT) AS a1
  FROM (
    SELECT
      v.item AS g0,
      v.voter AS v0,
      v.points AS v1
    FROM votes AS v
    WHERE
      v.ts <= $t AND $t <= v.ts + INTERVAL '5' MICROSECOND
  ) AS _entered
  GROUP BY
    _entered.g0
) AS _state
WHERE
  _state.a1 BETWEEN 4 AND 7

-- monotone
SELECT DISTINCT
  _state.g0 AS item,
  _state.a0 AS voters
FROM (
  SELECT
    _entered.g0 AS g0,
    _entered._at AS _at,
    CAST(COUNT(DISTINCT _entered.v0) AS BIGINT) AS a0,
    CAST(SUM(_entered.v1) AS BIGINT) AS a1
  FROM (
    SELECT
      v.item AS g0,
      v.voter AS v0,
      v.points AS v1,
      _change._at AS _at
    FROM votes AS v
    CROSS JOIN (
      SELECT
        v_then1.item AS g0,
        v_then1.ts AS _at
      FROM votes AS v_then1
      WHERE
        v_then1.ts <= $t
      UNION
      SELECT
        v_then1.item AS g0,
        v_then1.ts + INTERVAL '6' MICROSECOND AS _at
      FROM votes AS v_then1
      WHERE
        v_then1.ts + INTERVAL '6' MICROSECOND <= $t
    ) AS _change
    WHERE
      (
        v.ts <= _change._at AND _change._at <= v.ts + INTERVAL '5' MICROSECOND
      )
      AND v.item IS NOT DISTINCT FROM _change.g0
  ) AS _entered
  GROUP BY
    _entered.g0,
    _entered._at
) AS _state
WHERE
  _state.a1 BETWEEN 4 AND 7

-- incremental
SELECT DISTINCT
  _state.g0 AS item,
  _state.a0 AS voters
FROM (
  SELECT
    _entered.g0 AS g0,
    _entered._at AS _at,
    CAST(COUNT(DISTINCT _entered.v0) AS BIGINT) AS a0,
    CAST(SUM(_entered.v1) AS BIGINT) AS a1
  FROM (
    SELECT
      v.item AS g0,
      v.voter AS v0,
      v.points AS v1,
      _change._at AS _at
    FROM votes AS v
    CROSS JOIN (
      SELECT
        v_then1.item AS g0,
        v_then1.ts AS _at
      FROM votes AS v_then1
      WHERE
        v_then1.ts <= $t AND $tau < v_then1.ts
      UNION
      SELECT
        v_then1.item AS g0,
        v_then1.ts + INTERVAL '6' MICROSECOND AS _at
      FROM votes AS v_then1
      WHERE
        v_then1.ts + INTERVAL '6' MICROSECOND <= $t
        AND $tau <= v_then1.ts + INTERVAL '5' MICROSECOND
    ) AS _change
    WHERE
      (
        v.ts <= _change._at AND _change._at <= v.ts + INTERVAL '5' MICROSECOND
      )
      AND v.item IS NOT DISTINCT FROM _change.g0
  ) AS _entered
  GROUP BY
    _entered.g0,
    _entered._at
) AS _state
WHERE
  _state.a1 BETWEEN 4 AND 7

-- The result is every row that the query returned at any instant, each row once.
-- A row that is published after its upper bound on current time is never returned.
-- The aggregates of a group change where a row enters the group, and where a row leaves it.
-- The result holds an aggregate, so each of its values is a row.
-- A group can give an equal row again, so delivered rows are remembered without end.
