// An EventSource whose network is cut after every few messages: node eventsource.mjs PORT PATH COUNT. Prints the messages.

import { EventSource } from 'eventsource';
import { network } from './network.mjs';

const [port, path, count] = process.argv.slice(2);
const BETWEEN_CUTS = 7;

const its = await network(Number(port));
const events = new EventSource(its.url + path);
let got = 0;
events.addEventListener('gap', () => console.log('gap'));
events.addEventListener('message', (event) => {
  console.log(event.data);
  got++;
  if (got == count) {
    events.close();
    its.close();
  } else if (got % BETWEEN_CUTS == 0) {
    its.cut();
    its.mend();
  }
});
