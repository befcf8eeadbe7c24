// A client of WebSocket: node ws.mjs URL. Prints the messages, of long ones the length and whether they may be compressed.

import { WebSocket } from 'ws';

const socket = new WebSocket(process.argv[2], ['mailbox.json']);
socket.on('message', (data) => {
  const text = JSON.parse(data).data;
  const deflate = 'permessage-deflate' in socket._extensions;
  console.log(text.length < 10 ? text : `long ${text.length} ${deflate}`);
});
socket.on('error', (error) => {
  console.error(error);
  process.exit(1);
});
socket.on('close', (code, reason) => console.log(`closed ${code} ${reason}`));
