// The conformance suite of Durable Streams, unmodified.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const { STREAMS_URL, STREAMS_KEY } = process.env

// Whoever writes needs a key, which is no part of the protocol.
const send = globalThis.fetch
globalThis.fetch = (url, options = {}) => {
  const headers = new Headers(options.headers)
  headers.set("Authorization", `Bearer ${STREAMS_KEY}`)
  return send(url, { ...options, headers })
}

runConformanceTests({ baseUrl: STREAMS_URL })
