// Templates without a build step: tagged strings that become Preact's nodes. Text in them is always text, never markup.
import { h, render } from './vendor/preact.js';
import htm from './vendor/htm.js';
import { useEffect, useId, useLayoutEffect, useRef, useState } from './vendor/hooks.js';

export { render };
export { useEffect, useId, useLayoutEffect, useRef, useState };
export const html = htm.bind(h);
