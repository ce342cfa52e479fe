// Run from the root of the repository, since it also covers the browser scenarios in tests/e2e.
import eslint from "@eslint/js";
import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig({
  files: ["vscode-client/src/**/*.ts", "tests/e2e/**/*.mts"],
  extends: [eslint.configs.recommended, tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
  languageOptions: { parserOptions: { projectService: true } },
  rules: {
    // Numbers belong in messages; everything else must be turned into text on purpose.
    "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    // node:test collects its promises itself.
    "@typescript-eslint/no-floating-promises": [
      "error",
      { allowForKnownSafeCalls: [{ from: "package", name: ["test"], package: "node:test" }] },
    ],
  },
});
