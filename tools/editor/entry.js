/* What of CodeMirror the explorer uses: one global name, `CodeMirror`. */
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export { cpp } from "@codemirror/lang-cpp";
export { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
export { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
export { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
export { Compartment, EditorState, RangeSet, StateEffect, StateField } from "@codemirror/state";
export {
  Decoration, EditorView, GutterMarker, drawSelection, gutter, gutterLineClass, highlightActiveLine,
  highlightActiveLineGutter, keymap, lineNumbers,
} from "@codemirror/view";
export { classHighlighter } from "@lezer/highlight";
