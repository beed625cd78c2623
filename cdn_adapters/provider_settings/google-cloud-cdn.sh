# Google Cloud CDN: the origin's header fields decide, and the query is part of the key.
gcloud compute backend-services update @backend@ --global --enable-cdn --cache-mode=USE_ORIGIN_HEADERS \
  --cache-key-include-protocol --cache-key-include-host --cache-key-include-query-string \
  --serve-while-stale=0 --no-negative-caching
# A role that may invalidate, and nothing else.
gcloud iam roles create quaestorPurger --project=@project@ \
  --permissions=compute.urlMaps.invalidateCache,compute.urlMaps.get,compute.globalOperations.get
gcloud iam service-accounts create quaestor-purger --project=@project@
gcloud projects add-iam-policy-binding @project@ --role=projects/@project@/roles/quaestorPurger \
  --member=serviceAccount:quaestor-purger@@project@.iam.gserviceaccount.com
