// Which entities this deployment has, found by introspection: the page knows no model of its own. Where introspection is switched off,
// the name of a root field does.

/** An entity with history: its root fields, and the field that names a document to a person. */
export interface Entity {
  type: string;
  singular: string;
  plural: string | null;
  label: string | null;
  /** The field with a document's own id. */
  ownId: string;
}

/** An entity of which nothing but the name of its root field is known. */
export function entityNamed(singular: string): Entity {
  return { type: singular.charAt(0).toUpperCase() + singular.slice(1), singular, plural: null, label: null, ownId: "id" };
}

interface TypeRef {
  name: string | null;
  ofType?: TypeRef | null;
}
interface Introspected {
  __schema: {
    queryType: { fields: { name: string; type: TypeRef }[] };
    types: { name: string; fields: { name: string; type: TypeRef }[] | null }[];
  };
}

export const ENTITIES = `query Entities {
  __schema {
    queryType { fields { name type { name ofType { name } } } }
    types { name fields { name type { name ofType { name } } } }
  }
}`;

const LABELS = ["name", "title", "label", "sku", "subject"];
const named = (type: TypeRef): string => type.name ?? type.ofType?.name ?? "";

/** The audit trail `<singular>Versions` gives an entity away; a field that returns `<Type>Connection` lists its documents. */
export function entitiesOf({ __schema: { queryType, types } }: Introspected): Entity[] {
  const suffix = "VersionConnection";
  return queryType.fields
    .filter(({ name, type }) => name.endsWith("Versions") && named(type).endsWith(suffix))
    .map(({ name, type }) => {
      const entity = named(type).slice(0, -suffix.length);
      const fields = types.find((each) => each.name === entity)?.fields ?? [];
      const texts = fields.filter((field) => named(field.type) === "String").map((field) => field.name);
      return {
        type: entity,
        singular: name.slice(0, -"Versions".length),
        plural: queryType.fields.find((field) => named(field.type) === `${entity}Connection`)?.name ?? null,
        // Under Relay's naming `id` is another one.
        ownId: fields.some((field) => field.name === "nodeId") ? "id" : "documentId",
        label: LABELS.find((label) => texts.includes(label)) ?? texts[0] ?? null,
      };
    });
}
