// Perfetto's trace processor, as its own user interface has it (WebAssembly), under Node instead of
// a browser's worker: a TraceProcessorRpcStream each way, in pieces of any size.
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
    for (let left = bytes; left.length > 0; ) {
      left = left.subarray(fs.writeSync(1, left));
    }
  },
};
self.onmessage({ data: port });
process.stdin.on("data", (chunk) => port.onmessage({ data: new Uint8Array(chunk) }));
