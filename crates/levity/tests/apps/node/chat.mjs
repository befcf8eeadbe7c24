// Two tabs of the chat, of which one has no network for a while: node chat.mjs PORT SECONDS. Prints what both show.

import { setTimeout } from 'node:timers/promises';
import { chromium } from 'playwright-core';
import { network } from './network.mjs';

const [port, seconds] = process.argv.slice(2).map(Number);
const ROUND = 5;

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-proxy-server', '--disable-background-networking'],
});

async function open(name) {
  const its = await network(port);
  const page = await browser.newPage();
  await page.goto(`${its.url}/?room=test`);
  await page.fill('#name', name);
  const tab = {
    its,
    async say(text) {
      await page.fill('#text', text);
      await page.click('button');
    },
    state: (text) => page.waitForFunction((text) => document.getElementById('state').textContent === text, text),
    has: (count) => page.waitForFunction((count) => document.querySelectorAll('#log li').length >= count, count),
    shows: () => page.locator('#log li').allTextContents(),
  };
  await tab.state('connected');
  return tab;
}

const [anna, ben] = [await open('Anna'), await open('Ben')];
let said = 0;
async function talk() {
  for (let count = 0; count < ROUND; count++) {
    await anna.say(`a${said}`);
    await ben.say(`b${said}`);
    said++;
  }
}

await talk();
await ben.has(2 * said);
// What is on its way is cut too.
await talk();
anna.its.cut();
await anna.state('connecting again');
await talk();
await setTimeout(seconds * 1000);
anna.its.mend();
await anna.state('connected');
await talk();
for (const tab of [anna, ben]) await tab.has(2 * said);
console.log(JSON.stringify([await anna.shows(), await ben.shows()]));
await browser.close();
for (const tab of [anna, ben]) tab.its.close();
