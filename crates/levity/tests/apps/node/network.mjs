// A network to the server at PORT that can be cut. Whoever uses it connects to `url`.

import { once } from 'node:events';
import net from 'node:net';

export async function network(port) {
  const open = new Set();
  let isCut = false;
  const relay = net.createServer((client) => {
    if (isCut) {
      client.resetAndDestroy();
      return;
    }
    const server = net.connect(port, '127.0.0.1');
    for (const [socket, other] of [[client, server], [server, client]]) {
      open.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        open.delete(socket);
        other.destroy();
      });
      socket.pipe(other);
    }
  });
  relay.listen(0, '127.0.0.1');
  await once(relay, 'listening');
  return {
    url: `http://127.0.0.1:${relay.address().port}`,
    cut() {
      isCut = true;
      for (const socket of open) socket.resetAndDestroy();
    },
    mend() {
      isCut = false;
    },
    close() {
      this.cut();
      relay.close();
    },
  };
}
