CREATE ACTIVE DATASET Tweets (tid bigint, text text, hateful boolean, location point) PRIMARY KEY tid;
CREATE ACTIVE DATASET Officers (oid bigint, location point) PRIMARY KEY oid;
CREATE FEED TweetFeed WITH {"type": "http"};
CONNECT FEED TweetFeed TO DATASET Tweets AS INSERT;
START FEED TweetFeed;
CREATE FEED PositionFeed WITH {"type": "http"};
CONNECT FEED PositionFeed TO DATASET Officers AS UPSERT;
START FEED PositionFeed;
CREATE BROKER control AT "BROKER_URL" WITH {"public": true};
CREATE CONTINUOUS CHANNEL NearbyAlerts (officer bigint) PERIOD 1 SECOND {
  SELECT o.oid, t.tid, t.text, t.location AS place FROM Tweets t, Officers o
  WHERE is_new(t) AND t.hateful AND o.oid = officer AND near(t.location, o.location, RADIUS_M)
};
