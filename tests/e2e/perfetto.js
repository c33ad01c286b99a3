// Perfetto's trace processor, as its own user interface has it (WebAssembly), under Node instead of
// a browser's worker: frames of four bytes of length and a TraceProcessorRpcStream each, both ways.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2]; // of the user interface
const read = (url) => fs.readFileSync(path.join(folder, path.basename(String(url))));

process.type = "renderer"; // or it takes us for Node, which it was not built for
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: "http://localhost/engine_bundle.js" };
globalThis.XMLHttpRequest = class {
  open(method, url) {
    this.url = url;
  }
  send() {
    this.response = new Uint8Array(read(this.url)).buffer;
  }
};
vm.runInThisContext(read("engine_bundle.js").toString());

const port = {
  postMessage(bytes) {
    const head = Buffer.alloc(4);
    head.writeUInt32LE(bytes.byteLength);
    for (let left = Buffer.concat([head, bytes]); left.length > 0; ) {
      left = left.subarray(fs.writeSync(1, left));
    }
  },
};
self.onmessage({ data: port });

let input = Buffer.alloc(0);
process.stdin.on("data", (chunk) => {
  input = Buffer.concat([input, chunk]);
  while (input.length >= 4 && input.length >= 4 + input.readUInt32LE(0)) {
    const end = 4 + input.readUInt32LE(0);
    port.onmessage({ data: new Uint8Array(input.subarray(4, end)) });
    input = input.subarray(end);
  }
});
