# Azure Front Door: caching with the query in the key; the origin's Cache-Control decides. Purges take up to 10 minutes.
az afd route update --resource-group @resource_group@ --profile-name @profile@ --endpoint-name @endpoint@ --route-name @route@ \
  --enable-caching true --query-string-caching-behavior UseQueryString
# An app registration that may purge this profile.
az ad sp create-for-rbac --name quaestor-purger --role "CDN Endpoint Contributor" \
  --scopes /subscriptions/@subscription@/resourceGroups/@resource_group@/providers/Microsoft.Cdn/profiles/@profile@
