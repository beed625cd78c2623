# Varnish in front of a Quaestor application. Written for Varnish 6.0 LTS to 7.x with varnish-modules (xkey).
# `quaestor.cdn_adapters.varnish_vcl(...)` fills in what stands between @; `varnishd -f` then takes it as it is.
#
# What is kept, and for how long, the application says in CDN-Cache-Control (RFC 9213); nothing else is kept, and nothing is
# served after that. What must go earlier is purged by tag (xkey) or by URL.
vcl 4.1;

import std;
import xkey;
import purge;
import vsthrottle;

backend default {
    .host = "@backend_host@";
    .port = "@backend_port@";
    .connect_timeout = 2s;
    .first_byte_timeout = 60s;
    .between_bytes_timeout = 60s;
}

acl purgers {
@purgers@
}

sub vcl_recv {
    unset req.http.quaestor-cache;
    unset req.http.quaestor-purged;
    unset req.http.quaestor-known;
    if (req.http.host) {
        set req.http.host = std.tolower(req.http.host);
    }

    if (req.method == "PURGE") {
        if (client.ip !~ purgers@token_check@) {
            return (synth(403, "Forbidden"));
        }
        if (req.http.xkey-purge) {
            set req.http.quaestor-purged = xkey.purge(req.http.xkey-purge);
            return (synth(200, "Purged"));
        }
        if (req.http.xkey-softpurge) {
            set req.http.quaestor-purged = xkey.softpurge(req.http.xkey-softpurge);
            return (synth(200, "Purged"));
        }
        if (req.http.quaestor-purge-everything) {
            ban("obj.status != 0");
            set req.http.quaestor-purged = "everything";
            return (synth(200, "Purged"));
        }
        # By URL: looked up like any request, but without waiting for a fetch under way.
        set req.hash_ignore_busy = true;
        return (hash);
    }
    unset req.http.quaestor-purge-token;
    unset req.http.quaestor-purge-everything;

    if (req.method == "PRI") {
        return (synth(405));
    }
    if (req.http.upgrade ~ "(?i)\bwebsocket\b") {
        return (pipe);
    }
    if (req.method != "GET" && req.method != "HEAD") {
        set req.http.quaestor-cache = "method";
        return (pass);
    }
    if (req.http.authorization || req.http.cookie) {
        set req.http.quaestor-cache = "bypass";
        return (pass);
    }
    if (req.http.accept ~ "(?i)^\s*text/event-stream") {
        # A stream of events is one client's; what is kept under its URL is a plain answer.
        set req.http.quaestor-cache = "stream";
        return (pass);
    }
    if (req.http.if-none-match && req.http.prefer ~ "(?i)(^|[,;\s])wait\s*=") {
        # A long poll. All clients that hold the same copy wait for one fetch, which tells the application what they hold.
        set req.http.quaestor-known = req.http.if-none-match;
        return (hash);
    }
@strong_reads@    return (hash);
}

sub vcl_pipe {
    if (req.http.upgrade) {
        set bereq.http.upgrade = req.http.upgrade;
        set bereq.http.connection = req.http.connection;
    }
    return (pipe);
}

sub vcl_hash {
    hash_data(req.url);
    hash_data(req.http.host);
    if (req.http.quaestor-known) {
        hash_data("quaestor-known " + req.http.quaestor-known);
    }
    return (lookup);
}

sub purge_url {
    # All variants under this URL. Called where a look-up can end.
    if (req.http.quaestor-purge-soft) {
        set req.http.quaestor-purged = purge.soft();
    } else {
        set req.http.quaestor-purged = purge.hard();
    }
}

sub vcl_hit {
    if (req.method == "PURGE") {
        call purge_url;
        return (synth(200, "Purged"));
    }
    set req.http.quaestor-cache = "hit";
    return (deliver);
}

sub vcl_miss {
    if (req.method == "PURGE") {
        call purge_url;
        return (synth(200, "Purged"));
    }
    set req.http.quaestor-cache = "miss";
    return (fetch);
}

sub vcl_synth {
    if (req.http.quaestor-purged) {
        # Proof that it was this configuration that took the purge, and how many objects went.
        set resp.http.quaestor-purged = req.http.quaestor-purged;
    }
    set resp.http.cache-control = "no-store";
    set resp.body = "";
    return (deliver);
}

sub vcl_backend_fetch {
    unset bereq.http.quaestor-cache;
    if (bereq.http.quaestor-known) {
        set bereq.first_byte_timeout = 120s;
    }
    return (fetch);
}

sub vcl_backend_response {
    set beresp.grace = @grace_s@s;
    set beresp.keep = 0s;
    if (bereq.uncacheable) {
        return (deliver);
    }
    if (beresp.http.quaestor-live && beresp.http.vary ~ "(?i)^\s*accept\s*$") {
        # It varies only because its URL has a stream of events too, and streams pass: one object for all values of Accept.
        unset beresp.http.vary;
    }
    std.collect(beresp.http.cdn-cache-control);
    if (beresp.http.cdn-cache-control ~ "(?i)(^|[\s,])max-age=[0-9]+"
        && beresp.http.cdn-cache-control !~ "(?i)(^|[\s,])(no-store|no-cache|private)\b"
        && !beresp.http.set-cookie
        && beresp.http.vary !~ "\*") {
        set beresp.http.quaestor-lifetime =
            regsub(beresp.http.cdn-cache-control, "(?i)^(.*[\s,])?max-age=([0-9]+).*$", "\2s");
        # The answer may have spent a while in the application's own cache already.
        set beresp.ttl = std.duration(beresp.http.quaestor-lifetime, 0s) - beresp.age;
        unset beresp.http.quaestor-lifetime;
    } else {
        set beresp.ttl = 0s;
    }
    if (bereq.http.quaestor-known && beresp.ttl > 2s) {
        # For the clients that have waited, and for no longer than the application's own answers may be stale.
        set beresp.ttl = 2s;
    }
    if (beresp.ttl <= 0s) {
        # Remembered for a moment, so that requests for what nobody keeps do not queue behind each other. An answer that
        # may be kept replaces this at once.
        set beresp.ttl = 5s;
        set beresp.grace = 0s;
        set beresp.uncacheable = true;
    }
    return (deliver);
}

sub vcl_backend_error {
    set beresp.http.cache-control = "no-store";
    set beresp.http.retry-after = "1";
    set beresp.http.content-type = "text/plain; charset=utf-8";
    set beresp.body = "The application does not answer." + {"
"};
    set beresp.ttl = 0s;
    set beresp.uncacheable = true;
    return (deliver);
}

sub vcl_deliver {
    if (resp.http.quaestor-live && !resp.http.vary) {
        set resp.http.vary = "accept";
    }
    @kept_fields@
    std.collect(resp.http.cache-status);
    if (req.http.quaestor-cache == "hit") {
        set resp.http.x-varnish-cache = "hit";
        set resp.http.quaestor-status = "Varnish; hit; ttl=" + regsub(obj.ttl, "\..*$", "");
    } elsif (req.http.quaestor-cache == "miss") {
        set resp.http.x-varnish-cache = "miss";
        set resp.http.quaestor-status = "Varnish; fwd=miss";
        if (!obj.uncacheable) {
            set resp.http.quaestor-status = resp.http.quaestor-status + "; stored";
        }
    } else {
        set resp.http.x-varnish-cache = "pass";
        set resp.http.quaestor-status = "Varnish; fwd=" + req.http.quaestor-cache;
    }
    if (resp.http.cache-status) {
        set resp.http.cache-status = resp.http.cache-status + ", " + resp.http.quaestor-status;
    } else {
        set resp.http.cache-status = resp.http.quaestor-status;
    }
    unset resp.http.quaestor-status;
    return (deliver);
}
