/** A static server for tests: ranges, headers of one's choice, and connections that break. */
import { createReadStream, statSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".css": "text/css",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
};

export interface Request {
  readonly path: string;
  readonly range: string | null;
}

export class StaticServer {
  readonly requests: Request[] = [];
  /** Bytes of a file's body after which its connection breaks, by the end of its path; each once. */
  readonly breaks = new Map<string, number>();
  /** Whether ranges are served. */
  ranges = true;
  private readonly server: Server;

  private constructor(folder: string, headers: Readonly<Record<string, string>>) {
    this.server = createServer((request, response) => {
      const path = normalize(decodeURIComponent(new URL(request.url ?? "/", "http://x").pathname));
      const range = this.ranges ? (request.headers.range ?? null) : null;
      this.requests.push({ path, range });
      const file = join(folder, path.endsWith("/") ? `${path}index.html` : path);
      let size: number;
      try {
        size = statSync(file).size;
      } catch {
        response.writeHead(404).end();
        return;
      }
      const start = Number(/^bytes=(\d+)-$/.exec(range ?? "")?.[1] ?? 0);
      response.writeHead(range ? 206 : 200, {
        "Content-Type": TYPES[extname(file)] ?? "application/octet-stream",
        "Content-Length": size - start,
        ...(range && { "Content-Range": `bytes ${start}-${size - 1}/${size}` }),
        ...headers,
      });
      const [end, most] = [...this.breaks].find(([name]) => path.endsWith(name)) ?? [];
      if (end === undefined || most === undefined) {
        createReadStream(file, { start }).pipe(response);
        return;
      }
      this.breaks.delete(end);
      const part = createReadStream(file, { start, end: start + most - 1 });
      part.on("data", (data) => response.write(data));
      part.on("end", () => setTimeout(() => response.destroy(), 100));
    });
  }

  static async start(folder: string, headers: Readonly<Record<string, string>> = {}): Promise<StaticServer> {
    const made = new StaticServer(folder, headers);
    await new Promise<void>((resolve) => made.server.listen(0, "127.0.0.1", resolve));
    return made;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/`;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

/** Headers with which a page may use threads. */
export const ISOLATED = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};

/** The strictest policy under which WebAssembly runs. */
export const STRICT = {
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; worker-src 'self'; " +
    "base-uri 'none'; form-action 'none'",
};
