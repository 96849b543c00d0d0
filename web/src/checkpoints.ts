// Subscriptions without their checkpoints. GraphiQL shows the last event only, and a checkpoint would take the change off the screen.
import type { ExecutionResult } from "graphql";
import { Kind, type OperationDefinitionNode, OperationTypeNode } from "graphql";

const MARK = "graphiqlKind";

/** Return the query with the kind of each event as MARK; unchanged if the user selects the kind or the token, and so wants checkpoints. */
export function withKind(query: string, operation: OperationDefinitionNode): string {
  const [field] = operation.selectionSet.selections;
  if (operation.operation !== OperationTypeNode.SUBSCRIPTION || field?.kind !== Kind.FIELD) return query;
  const selected = field.selectionSet?.selections ?? [];
  const wanted = selected.some((each) => each.kind === Kind.FIELD && ["kind", "resumeToken"].includes(each.name.value));
  const end = field.selectionSet?.loc?.end;
  // Before the closing brace, so that errors name the lines of the user's text.
  return wanted || end === undefined ? query : `${query.slice(0, end - 1)} ${MARK}: kind ${query.slice(end - 1)}`;
}

/** Leave out the events whose MARK is a checkpoint, and MARK from the others. */
export function withoutCheckpoints(results: AsyncIterable<ExecutionResult>): AsyncIterable<ExecutionResult> {
  const from = results[Symbol.asyncIterator]();
  return {
    // Not a generator: its `return` would wait for the next event, and the subscription would go on until then.
    [Symbol.asyncIterator]: () => ({
      async next() {
        for (;;) {
          const step = await from.next();
          const event = step.done ? null : (Object.values(step.value.data ?? {})[0] as Record<string, unknown> | null);
          if (event?.[MARK] === "CHECKPOINT") continue;
          if (event) delete event[MARK];
          return step;
        }
      },
      return: async () => (await from.return?.()) ?? { done: true, value: undefined },
    }),
  };
}
