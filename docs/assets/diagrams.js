// On a small screen a wide diagram keeps its size and is scrolled: shrunk, nobody could read it.
const initialize = mermaid.initialize;
mermaid.initialize = (options) => {
  const useMaxWidth = innerWidth > 760;
  const kinds = ["flowchart", "sequence", "state", "er", "class", "gantt"];
  const sized = kinds.map((kind) => [kind, { ...options[kind], useMaxWidth }]);
  return initialize({ ...options, ...Object.fromEntries(sized) });
};
