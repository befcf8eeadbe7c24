// An Express application that holds clients by GRIP, /grip?hold=stream&channel=NAME, and publishes to them:
// POST /grip?control=URI&to=stream&channel=NAME.

import express from 'express';
import { ServeGrip } from '@fanoutio/serve-grip';
import { Publisher } from '@fanoutio/grip';

// The key of the tests, which the server has too.
const GRIP = { control_iss: 'app', key: '0123456789abcdef0123456789abcdef' };

const app = express();
app.set('query parser', (text) => new URLSearchParams(text));
app.use(new ServeGrip({ grip: { control_uri: 'http://127.0.0.1:9/', ...GRIP } }));

app.get('/grip', (request, response) => {
  const query = request.query;
  if (!request.grip.isSigned) {
    response.status(501).end('not through the server');
    return;
  }
  const instruct = response.grip.startInstruct();
  instruct.addChannel(query.getAll('channel'));
  response.type('text/plain');
  if (query.get('hold') === 'stream') {
    instruct.setHoldStream();
    instruct.setKeepAlive('alive\n', 1);
    response.end('held\n');
  } else {
    instruct.setHoldLongPoll(Number(query.get('timeout')));
    response.end('nothing new');
  }
});

app.post('/grip', express.text({ type: () => true }), async (request, response) => {
  const query = request.query;
  const publisher = new Publisher({ control_uri: query.get('control'), ...GRIP });
  const publish = { stream: 'publishHttpStream', response: 'publishHttpResponse' }[query.get('to')];
  await publisher[publish](query.get('channel'), request.body);
  response.end('published');
});

const server = app.listen(0, '127.0.0.1', () => {
  console.log(`listening at http://127.0.0.1:${server.address().port}\n`);
});
