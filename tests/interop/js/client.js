// The grpc-js client of the interop tests: the cases of the other gRPC clients, the proto loaded as it
// is. --target HOST:PORT --proto FILE [--cases a,b,c] [--service NAME]; one line of JSON for each case.
'use strict';

const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const FOUR_MIB = 4 * 1024 * 1024;
const LENGTH = 20;
const ERROR_TEXT = 'no such thing: 100% + two';
const TRAILER = 'x-interop-trailer';
const HEADER = 'x-interop-header';
const CASE_LIMIT_MS = 20000;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function options(argv) {
  const values = {};
  for (let i = 0; i < argv.length; i += 2) {
    if (!argv[i].startsWith('--') || argv[i + 1] === undefined) {
      throw new Error(`not an option with a value: ${argv[i]}`);
    }
    values[argv[i].slice(2)] = argv[i + 1];
  }
  return values;
}

function equal(what, wanted, got) {
  if (wanted !== got) {
    throw new Error(`${what}: wanted <${String(wanted).slice(0, 300)}>, got <${String(got).slice(0, 300)}>`);
  }
}

function holds(what, condition) {
  if (!condition) {
    throw new Error(what);
  }
}

/** Bytes that repeat with a period that no buffer size divides, so that a shifted copy is seen. */
function bytes(length) {
  const made = Buffer.alloc(length);
  for (let i = 0; i < length; i++) {
    made[i] = i % 251;
  }
  return made;
}

const numbered = () =>
  Array.from({ length: LENGTH }, (_, i) => ({ text: `n${i}`, payload: bytes(100 + i) }));

const failing = (code, message) => ({
  text: 'fails',
  fail: { code, message },
  trailing: [{ key: TRAILER, value: 'kept' }],
});

function echoed(request, reply) {
  equal('text', request.text, reply.text);
  holds('the payload comes back', Buffer.compare(request.payload || Buffer.alloc(0), reply.payload) === 0);
}

class Client {
  constructor(target, service) {
    this.service = service;
    this.channel = new grpc.Client(target, grpc.credentials.createInsecure(), {
      'grpc.max_receive_message_length': 16 * 1024 * 1024,
      'grpc.enable_retries': 0,
    });
    this.compressing = new grpc.Client(target, grpc.credentials.createInsecure(), {
      'grpc.default_compression_algorithm': grpc.compressionAlgorithms.gzip,
      'grpc.enable_retries': 0,
    });
  }

  close() {
    this.channel.close();
    this.compressing.close();
  }

  /** A unary call: {reply, metadata, status}; rejects with grpc-js's error. `hold` gets the call object. */
  say(request, { metadata = new grpc.Metadata(), call = {}, channel = this.channel, hold = () => {} } = {}) {
    const say = this.service.Say;
    return new Promise((resolve, reject) => {
      const seen = {};
      const made = channel.makeUnaryRequest(say.path, say.requestSerialize, say.responseDeserialize,
        request, metadata, call, (error, reply) => {
          seen.reply = reply;
          seen.error = error;
        });
      made.on('metadata', (leading) => { seen.leading = leading; });
      made.on('status', (status) => {
        seen.status = status;
        // The callback may come after this event.
        setImmediate(() => (seen.error ? reject(seen.error) : resolve(seen)));
      });
      hold(made);
    });
  }

  stream(method, requests) {
    const m = this.service[method];
    if (!m.requestStream) {
      return this.channel.makeServerStreamRequest(m.path, m.requestSerialize, m.responseDeserialize, requests);
    }
    return this.channel.makeBidiStreamRequest(m.path, m.requestSerialize, m.responseDeserialize);
  }

  collect(requests) {
    const m = this.service.Collect;
    return new Promise((resolve, reject) => {
      const call = this.channel.makeClientStreamRequest(m.path, m.requestSerialize, m.responseDeserialize,
        (error, reply) => (error ? reject(error) : resolve(reply)));
      requests.forEach((request) => call.write(request));
      call.end();
    });
  }

  async cancelled() {
    const m = this.service.Count;
    return new Promise((resolve, reject) => this.channel.makeUnaryRequest(m.path, m.requestSerialize,
      m.responseDeserialize, {}, (error, reply) => (error ? reject(error) : resolve(Number(reply.cancelled)))));
  }
}

async function fails(promise) {
  try {
    await promise;
  } catch (error) {
    if (error.code === undefined) {
      throw error;
    }
    return error;
  }
  throw new Error('the call went well, an error was wanted');
}

/** All messages of a stream, then its error or null. */
function drain(call) {
  return new Promise((resolve) => {
    const all = [];
    call.on('data', (reply) => all.push(reply));
    call.on('error', (error) => resolve([all, error]));
    call.on('end', () => setImmediate(() => resolve([all, null])));
  });
}

function inOrder(replies, count) {
  equal('number of replies', count, replies.length);
  replies.forEach((reply, i) => equal('index', i, reply.index));
}

async function unary(client) {
  const request = { text: 'hello', payload: bytes(64) };
  echoed(request, (await client.say(request)).reply);
}

const cases = {
  unary,

  async error(client, facts) {
    const error = await fails(client.say(failing(5, ERROR_TEXT)));
    facts.message = error.details;
    facts.metadata = error.metadata.get(TRAILER)[0] === 'kept';
    equal('code', grpc.status.NOT_FOUND, error.code);
    holds(`message: ${error.details}`, error.details.includes(ERROR_TEXT));
  },

  async deadline(client) {
    const start = Date.now();
    const error = await fails(client.say({ text: 'slow', delayMs: 1500 }, { call: { deadline: start + 300 } }));
    equal('code', grpc.status.DEADLINE_EXCEEDED, error.code);
    const ms = Date.now() - start;
    holds(`deadline after ${ms} ms, wanted 250 to 1000`, ms >= 250 && ms <= 1000);
    await unary(client);
  },

  async cancel(client) {
    const start = Date.now();
    const error = await fails(client.say({ text: 'slow', delayMs: 2000 },
      { hold: (call) => setTimeout(() => call.cancel(), 200) }));
    equal('code', grpc.status.CANCELLED, error.code);
    holds('the cancelled call ends at once', Date.now() - start < 1000);
    await unary(client);
  },

  async server(client) {
    const [replies, error] = await drain(client.stream('Expand', { text: 'stream', count: LENGTH, gapMs: 2 }));
    equal('error', null, error);
    inOrder(replies, LENGTH);
  },

  async client(client) {
    const requests = numbered();
    const reply = await client.collect(requests);
    equal('requests counted', LENGTH, reply.index);
    equal('bytes counted', requests.reduce((sum, each) => sum + each.payload.length, 0), Number(reply.totalBytes));
  },

  async bidi(client) {
    const call = client.stream('Chat');
    const waiting = [];
    call.on('data', (reply) => waiting.shift()[0](reply));
    const ended = new Promise((resolve, reject) => {
      call.on('error', (error) => {
        waiting.forEach(([, refuse]) => refuse(error));
        reject(error);
      });
      call.on('end', resolve);
    });
    ended.catch(() => {});
    for (const request of numbered()) {
      const answered = new Promise((resolve, reject) => waiting.push([resolve, reject]));
      call.write(request);
      echoed(request, await answered);
    }
    call.end();
    await ended;
  },

  async big(client) {
    const request = { text: 'big', payload: bytes(FOUR_MIB) };
    echoed(request, (await client.say(request)).reply);
  },

  async gzip(client) {
    const request = { text: 'squeezed'.repeat(8192) };
    echoed(request, (await client.say(request, { channel: client.compressing })).reply);
  },

  async codes(client) {
    for (let code = 1; code <= 16; code++) {
      const error = await fails(client.say(failing(code, `code ${code}`)));
      equal('code', code, error.code);
      holds(`message of ${code}: ${error.details}`, error.details.includes(`code ${code}`));
    }
  },

  async metadata(client, facts) {
    const metadata = new grpc.Metadata();
    metadata.set(HEADER, 'text value');
    metadata.set('x-interop-bin', Buffer.from([0, 1, 2, 0xfe, 0xff]));
    const { reply, leading, status } = await client.say({
      wantHeaders: true,
      leading: [{ key: 'x-interop-leading', value: 'first' }],
      trailing: [{ key: TRAILER, value: 'last' }],
    }, { metadata });
    facts.leading = String(leading && leading.get('x-interop-leading')[0]);
    facts.trailing = String(status.metadata.get(TRAILER)[0]);
    const seen = Object.fromEntries(reply.headers.map((entry) => [entry.key, entry.value]));
    facts.headers = Object.keys(seen).sort().join(' ');
    equal('text header', 'text value', seen[HEADER]);
    equal('binary header', 'AAEC/v8', String(seen['x-interop-bin']).replace(/=+$/, ''));
  },

  async cancel_stream(client) {
    const before = await client.cancelled();
    const call = client.stream('Expand', { text: 'stream', count: 100, gapMs: 50 });
    const [replies, error] = await new Promise((resolve) => {
      const all = [];
      call.on('data', (reply) => {
        if (all.push(reply) === 3) {
          call.cancel();
        }
      });
      call.on('error', (why) => resolve([all, why]));
      call.on('end', () => resolve([all, null]));
    });
    equal('code', grpc.status.CANCELLED, error && error.code);
    inOrder(replies.slice(0, 3), 3);
    for (let i = 0; i < 40 && (await client.cancelled()) === before; i++) {
      await sleep(50);
    }
    holds('the provider saw a cancelled call', (await client.cancelled()) > before);
  },

  async stream_error(client) {
    const [replies, error] = await drain(client.stream('Expand',
      { text: 'stream', count: 10, gapMs: 1, fail: { code: 8, message: 'enough of it', after: 3 } }));
    inOrder(replies, 3);
    equal('code', grpc.status.RESOURCE_EXHAUSTED, error && error.code);
    holds(`message: ${error.details}`, error.details.includes('enough of it'));
  },

  async empty(client) {
    const { reply } = await client.say({ emptyReply: true });
    equal('text', '', reply.text);
    equal('payload', 0, reply.payload.length);
  },

  async concurrent(client) {
    const requests = Array.from({ length: 100 }, (_, i) => ({ text: `c${i}`, payload: bytes(64) }));
    const results = await Promise.all(requests.map((request) => client.say(request)));
    requests.forEach((request, i) => echoed(request, results[i].reply));
  },
};

async function runOne(name, client) {
  const line = { case: name, ok: false, detail: '', facts: {} };
  let timer;
  try {
    holds('this client has no such case', Object.hasOwn(cases, name));
    const limit = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no end within ${CASE_LIMIT_MS} ms`)), CASE_LIMIT_MS);
    });
    await Promise.race([cases[name](client, line.facts), limit]);
    line.ok = true;
  } catch (error) {
    line.detail = String(error).replace(/\s*\n\s*/g, ' | ').slice(0, 600);
  } finally {
    clearTimeout(timer);
  }
  console.log(JSON.stringify(line));
  return line.ok;
}

async function main() {
  const given = options(process.argv.slice(2));
  const definition = loader.loadSync(given.proto, { longs: String, defaults: true });
  const client = new Client(given.target, definition[given.service || 'tributary.interop.Echo']);
  const wanted = given.cases ? given.cases.split(',') : Object.keys(cases);
  let allOk = true;
  for (const name of wanted) {
    allOk = (await runOne(name, client)) && allOk;
  }
  client.close();
  process.exit(allOk ? 0 : 1);
}

main();
