import { defineConfig } from "vite";

// Names without hashes: the server compares files by their content, and a rebuild changes as little as it must.
export default defineConfig({
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    outDir: "../internal/web/dist",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    rollupOptions: {
      output: { entryFileNames: "assets/page.js", chunkFileNames: "assets/[name].js", assetFileNames: "assets/page[extname]" },
    },
  },
});
