/* quaestor b8512e0a53d63249 */
"use strict";var t;(t=self).addEventListener("install",()=>{t.skipWaiting()}),t.addEventListener("activate",e=>{e.waitUntil((async()=>{for(let t of await caches.keys())/^quaestor-\d/.test(t)&&await caches.delete(t);await t.registration.unregister()})())});
