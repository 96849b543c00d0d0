import { defineConfig } from "vite";

// The gateway serves what is built under /static/; names under assets/ carry a hash of the content and may be cached for ever.
export default defineConfig({
  base: "/static/",
  build: {
    // Top-level await, and nothing older than a browser of two years ago.
    target: "es2023",
    rollupOptions: {
      input: ["index.html", "graphiql.html"],
      onLog(level, log, report) {
        // "use client" is for React's server rendering, of which there is none here.
        if (log.code !== "MODULE_LEVEL_DIRECTIVE") report(level, log);
      },
    },
    // Nothing of ours as a data: URL, so that the content security policy can do without them for scripts and images.
    assetsInlineLimit: 0,
    // Monaco is what it is; GraphiQL alone loads it, from this very gateway.
    chunkSizeWarningLimit: 5000,
  },
  worker: { format: "es" },
  // `npm run dev` beside a running gateway: pages from Vite, everything else from the gateway.
  server: {
    proxy: {
      "/graphql": { target: "http://127.0.0.1:8000", ws: true },
      "/examples.json": "http://127.0.0.1:8000",
    },
  },
});
