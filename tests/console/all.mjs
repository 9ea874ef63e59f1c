// All tests of the console with the fake of the API, in one process with one browser.
import './parts.mjs';
import './sign-in.mjs';
import './links.mjs';
import './link.mjs';
import './keys.mjs';
import './many.mjs';
import './guards.mjs';
import './look.mjs';
