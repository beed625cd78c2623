/** `<script type="module" src="/quaestor/register.js?handles=/api/"></script>`: the line that registers the worker beside it. */

import { register } from "./registration.ts";

const { href, search } = new URL(import.meta.url);
void register(new URL(`worker.js${search}`, href).href);
