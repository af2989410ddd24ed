// SPDX-License-Identifier: Apache-2.0
// What grpc_application.py's process does, with another implementation of gRPC: calls only.
"use strict";

const readline = require("node:readline");
const grpc = require("@grpc/grpc-js");
require("@grpc/grpc-js-xds").register();

const METHOD = "/test.Backend/Name";
const asIs = (bytes) => bytes;
const clients = new Map();
let flowing = null;

function clientOf(target) {
  if (!clients.has(target)) {
    clients.set(target, new grpc.Client(target, grpc.credentials.createInsecure()));
  }
  return clients.get(target);
}

function once(target, metadata, outcome) {
  const sent = new grpc.Metadata();
  for (const [name, value] of Object.entries(metadata)) sent.set(name, value);
  const options = { deadline: Date.now() + 10_000 };
  return new Promise((resolve) => {
    const done = (error, reply) => {
      if (error) {
        outcome.failures.push(`${grpc.status[error.code]}: ${error.details}`);
      } else {
        const name = reply.toString();
        outcome.replies[name] = (outcome.replies[name] ?? 0) + 1;
      }
      resolve();
    };
    clientOf(target).makeUnaryRequest(
      METHOD, asIs, asIs, Buffer.alloc(0), sent, options, done);
  });
}

async function flow(target) {
  const outcome = { replies: {}, failures: [] };
  while (!flowing.over) await once(target, {}, outcome);
  return outcome;
}

async function answer(command) {
  if (command.call !== undefined) {
    const outcome = { replies: {}, failures: [] };
    for (let left = command.count; left > 0; left--) {
      await once(command.call, command.metadata, outcome);
    }
    return outcome;
  }
  if (command.flow !== undefined) {
    flowing = { over: false };
    flowing.outcome = flow(command.flow);
    return {};
  }
  flowing.over = true;
  return flowing.outcome;
}

// @grpc/grpc-js-xds builds a ring of hashes in a promise that nobody awaits, and throws there when
// the endpoints were replaced or the balancer was destroyed meanwhile: the ring is then not needed
// any more, but Node ends a process for it. Everything else is as deadly as it was.
process.on("unhandledRejection", (error) => {
  if (!String(error?.message).startsWith("ring_hash: Invalid state: ")) throw error;
  console.error(error);
});

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
  }
  process.exit(0);
})();
