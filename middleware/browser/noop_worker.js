/* quaestor b051f7268ac5b723 */
"use strict";(()=>{var e=self;e.addEventListener("install",()=>{e.skipWaiting()});e.addEventListener("activate",t=>{let n=async()=>{for(let i of await caches.keys())/^quaestor-\d/.test(i)&&await caches.delete(i);await e.registration.unregister()};t.waitUntil(n())});})();
