"""Unions and interfaces: members, discriminators, shared fields, and their mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.definition import Discriminator, Scalar, UnionMember
from revstream.model.errors import ModelError

ORDER = 'type Order @collection(name: "orders") { id: ID! payment: Payment }'
UNION = 'union Payment @discriminator(field: "kind") = Card | Cash'


def case(name: str, text: str, subject: str, problem: str, mend: str) -> object:
    """Return one mistake as parameters."""
    return pytest.param(f"{ORDER}\n{text}", subject, problem, mend, id=name)


MISTAKES = [
    case(
        "no discriminator",
        "union Payment = Card # !\ntype Card { limit: Int }",
        "Payment",
        "the union has no @discriminator, expected the field that tells its members apart",
        'write union Payment @discriminator(field: "kind")',
    ),
    case(
        "no member",
        'interface Payment @discriminator(field: "kind") { limit: Int } # !',
        "Payment",
        "the interface has no members, expected at least one embedded type",
        "add implements Payment to the types that its documents have",
    ),
    case(
        "a name that GraphQL reserves",
        'union Payment @discriminator(field: "__t") = Card # !\ntype Card { limit: Int }',
        "Payment",
        '@discriminator(field: "__t"): expected a name of GraphQL without __ at its start',
        'write @discriminator(field: "kind", storedAs: "__t")',
    ),
    case(
        "an unknown member",
        'union Payment @discriminator(field: "kind") = Crd | Cash # !\ntype Cash { limit: Int }',
        "Payment",
        '"Crd": expected a type of the model',
        "declare a type of that name, or remove it",
    ),
    case(
        "an enum as a member",
        'union Payment @discriminator(field: "kind") = Cash | Colour # !\n'
        "enum Colour { RED } type Cash { limit: Int }",
        "Payment",
        "Colour is an enum, expected a type",
        "declare a type of that name, or remove it",
    ),
    case(
        "a member twice",
        'union Payment @discriminator(field: "kind") = Cash | Cash # !\ntype Cash { limit: Int }',
        "Payment",
        '"Cash" twice, expected once',
        "remove one of them",
    ),
    case(
        "an entity as a member",
        'union Payment @discriminator(field: "kind") = Cash | Bill # !\n'
        'type Cash { limit: Int } type Bill @collection(name: "bills") { id: ID! limit: Int }',
        "Payment",
        "Bill is an entity, expected a type without @collection as a member of Payment",
        "remove its @collection, or remove it from the union",
    ),
    case(
        "a union in a union",
        'union Payment @discriminator(field: "kind") = Cash | Other # !\n'
        'type Cash { other: Other } union Other @discriminator(field: "kind") = Card\n'
        "type Card { limit: Int }",
        "Payment",
        "Other is a union, expected a type without @collection as a member of Payment",
        "name the members of both in one union",
    ),
    case(
        "a member of two unions",
        f"{UNION} type Card {{ limit: Int other: Other }} type Cash\n"
        'union Other @discriminator(field: "type") = Cash | Coin # !\n'
        "type Coin { limit: Int }",
        "Other",
        "Cash already is a member of Payment, maximum is one union",
        "declare a type of its own for Other",
    ),
    case(
        "an interface of an interface",
        'interface Payment implements Paid @discriminator(field: "kind") { limit: Int } # !\n'
        "type Card implements Payment { limit: Int }",
        "Payment",
        'it implements "Paid", but interfaces of a model implement none',
        "write the fields of both in one interface",
    ),
    case(
        "a declared discriminator",
        f"{UNION}\ntype Card {{\nkind: String # !\n}} type Cash",
        "Card.kind",
        '"kind" is the discriminator, which @discriminator adds',
        "remove the field",
    ),
    case(
        "a field where the discriminator is stored",
        f'{UNION}\ntype Card {{\ntype: String @stored(as: "kind") # !\n}} type Cash',
        "Card.type",
        'it is stored as "kind", like "kind"',
        "choose another name with @stored(as:)",
    ),
    case(
        "one value for two",
        f'{UNION}\ntype Card {{ limit: Int }} type Cash @variant(value: "Card") # !',
        "Cash",
        '@variant(value: "Card"): the same as that of Card, expected another one in Payment',
        'give each member a value: @variant(value: "…")',
    ),
    case(
        "a variant of nothing",
        'type Payment @variant(value: "x") { limit: Int } # !',
        "Payment",
        "@variant: Payment is no member of a union, expected one",
        "remove it, or name the type in a union",
    ),
    case(
        "a missing shared field",
        'interface Payment @discriminator(field: "kind") { limit: Int! }\n'
        "type Card implements Payment { holder: String } # !",
        "Card",
        "it has no limit, which Payment has",
        'add "limit: Int!"',
    ),
    case(
        "a shared field of another type",
        'interface Payment @discriminator(field: "kind") { limit: Int! }\n'
        "type Card implements Payment {\nlimit: Int # !\n}",
        "Card.limit",
        "it is Int, and Int! in Payment",
        'write "limit: Int!"',
    ),
    case(
        "a directive on a shared field",
        'interface Payment @discriminator(field: "kind") { limit: Int! }\n'
        'type Card implements Payment {\nlimit: Int! @access(read: ["a"]) # !\n}',
        "Card.limit",
        "@access: on a field of Payment, expected there",
        "move it to Payment.limit",
    ),
    case(
        "a reference of an interface",
        'interface Payment @discriminator(field: "kind") { orderId: ID\n'
        'order: Order @reference(by: "orderId") # !\n}\n'
        "type Card implements Payment { orderId: ID order: Order }",
        "Payment.order",
        "@reference: on a field of an interface, expected on a field of a member",
        "write the field in each member and remove it here",
    ),
    case(
        "a reference by a shared field",
        'interface Payment @discriminator(field: "kind") { orderId: ID }\n'
        "type Card implements Payment { orderId: ID\n"
        'order: Order @reference(by: "orderId") # !\n}',
        "Card.order",
        '@reference(by: "orderId"): a field of Payment, expected one of Card alone',
        "remove orderId from Payment",
    ),
    case(
        "one stored name under two names",
        f'{UNION}\ntype Card {{ limit: Int }} type Cash {{\ntop: Int @stored(as: "limit") # !\n}}',
        "Cash.top",
        'it is stored as "limit", like Card.limit, expected the same name in all members of '
        "Payment",
        'rename it: limit: Int @stored(as: "limit")',
    ),
    case(
        "two stored names under one name",
        f'{UNION}\ntype Card {{ limit: Int }} type Cash {{\nlimit: Int @stored(as: "max") # !\n}}',
        "Cash.limit",
        'it is stored as "max", and Card.limit as "limit", expected the same in all members of '
        "Payment",
        "rename one of them",
    ),
    case(
        "a member named like a shared field",
        'interface Payment @discriminator(field: "kind") { card: Int }\n'
        "type Card implements Payment { card: Int } # !",
        "Card",
        'filters of Payment have "card" for it, which they already have',
        'rename the type, for example "PaymentCard"',
    ),
    case(
        "roles of a member",
        f'{UNION}\ntype Card @access(read: ["staff"]) {{ limit: Int }} type Cash # !',
        "Card",
        "@access: Card is a member of Payment, expected on the union or on fields",
        "move it to Payment, or to fields of Card",
    ),
    case(
        "a member as a field's type",
        f'{UNION} type Card {{ limit: Int }} type Cash\ntype Bill @collection(name: "bills") {{\n'
        "id: ID! cards: [Card!] # !\n}",
        "Bill.cards",
        "Card is a member of Payment, expected the union",
        'write "cards: [Payment!]"',
    ),
    case(
        "an unused union",
        'union Other @discriminator(field: "kind") = Card # !\n'
        "type Card { limit: Int } type Payment { limit: Int }",
        "Other",
        "union: not used, expected a field of an entity with it",
        "use it in a field or remove it",
    ),
    case(
        "a copy inside of a member",
        f"{UNION} type Card {{ part: Part }} type Cash\n"
        'type Part { orderId: ID order: Order @reference(by: "orderId")\n'
        'note: String @copy(of: "order.note") # !\n}',
        "Part.note",
        "@copy: Part is part of a union, expected a type that is not",
        "remove @copy, and read the field through the reference",
    ),
    case(
        "an index on an unknown field of a member",
        f"{UNION} type Card {{ limit: Int }} type Cash\n"
        'type Bill @collection(name: "bills") @index(fields: ["paid.card.top"]) { # !\n'
        "id: ID! paid: Payment }",
        "Bill",
        '@index: Card has no stored field "top"',
        "it has kind, limit",
    ),
    case(
        "a row rule on an unknown field of a member",
        f"{UNION} type Card {{ limit: Int }} type Cash\n"
        'type Bill @collection(name: "bills")\n'
        '@access(rows: "{ paid: { card: { exists: true } } }") { # !\n'
        "id: ID! paid: Payment }",
        "Bill",
        '@access(rows:) names "exists", expected a stored field of Card',
        "it has kind, limit",
    ),
]


ANIMAL = """
interface Animal @collection(name: "animals") @discriminator(field: "kind") {
  id: ID! name: String
}
type Cat implements Animal { id: ID! name: String }
"""


def of_entity(name: str, text: str, subject: str, problem: str, mend: str) -> object:
    """Return one mistake in an entity that is an interface."""
    return pytest.param(f"{ANIMAL}\n{text}", subject, problem, mend, id=name)


MISTAKES += [
    of_entity(
        "an index of a member",
        'type Dog implements Animal @index(fields: ["breed"]) { # !\n'
        "id: ID! name: String breed: Int }",
        "Dog",
        "@index: Dog is a member of Animal, expected on Animal",
        "move it to Animal",
    ),
    of_entity(
        "an index on an unknown name in a union",
        'type Person @collection(name: "people") @index(fields: ["pet.cat"]) { # !\n'
        "id: ID! pet: Pet }\n"
        'union Pet @discriminator(field: "kind") = Bird type Bird { wings: Int }',
        "Person",
        '@index: Pet has no stored field "cat"',
        "it has kind",
    ),
    of_entity(
        "an index that names a member alone",
        'type Person @collection(name: "people") @index(fields: ["pet.bird"]) { # !\n'
        "id: ID! pet: Pet }\n"
        'union Pet @discriminator(field: "kind") = Bird type Bird { wings: Int }',
        "Person",
        '@index: Pet has no stored field "bird"',
        "it has kind",
    ),
    of_entity(
        "an index of one stored name by two members",
        'interface Plant @collection(name: "plants") @discriminator(field: "kind")\n'
        '@index(fields: ["tree.height", "bush.height"]) { # !\nid: ID! }\n'
        "type Tree implements Plant { id: ID! height: Int }\n"
        "type Bush implements Plant { id: ID! height: Int }",
        "Plant",
        '@index names "tree.height" and "bush.height", which are stored as "height"',
        "name it once",
    ),
    of_entity(
        "an index without the key of the member",
        'interface Plant @collection(name: "plants") @discriminator(field: "kind")\n'
        '@index(fields: ["height"]) { # !\nid: ID! }\n'
        "type Tree implements Plant { id: ID! height: Int }",
        "Plant",
        '@index: Plant has no stored field "height"',
        'did you mean "tree.height"?',
    ),
    of_entity(
        "a search in a member",
        'interface Plant @collection(name: "plants") @discriminator(field: "kind")\n'
        '@search(fields: ["tree.note"]) { # !\nid: ID! }\n'
        "type Tree implements Plant { id: ID! note: String }",
        "Plant",
        '@search: "tree.note" is in a member of Plant, expected a field of Plant',
        "move it to Plant, or name another field",
    ),
    of_entity(
        "a unique field of a member",
        "type Dog implements Animal { id: ID! name: String\nchip: Int @unique # !\n}",
        "Dog.chip",
        "@unique: on a field of Dog alone, expected on a field of Animal",
        "remove it, or move the field to Animal",
    ),
    of_entity(
        "a member of an entity without its id",
        "type Dog implements Animal { name: String } # !",
        "Dog",
        "it has no id, which Animal has",
        'add "id: ID!"',
    ),
    of_entity(
        "a reference to a member",
        'type Person @collection(name: "people") { id: ID! catId: ID\n'
        'cat: Cat @reference(by: "catId") # !\n}',
        "Person.cat",
        "Cat is a member of Animal, expected the interface",
        'write "cat: Animal"',
    ),
    of_entity(
        "a copy of a member's field",
        "type Dog implements Animal { id: ID! name: String breed: Int }\n"
        'type Person @collection(name: "people") { id: ID! petId: ID\n'
        'pet: Animal @reference(by: "petId")\nbreed: Int @copy(of: "pet.breed") # !\n}',
        "Person.breed",
        '@copy(of: "pet.breed"): Animal has no field "breed"',
        "it has kind, id, name",
    ),
    of_entity(
        "a reserved name in the interface",
        'interface Plant @collection(name: "plants") @discriminator(field: "kind") { id: ID!\n'
        "history: Int # !\n}\ntype Tree implements Plant { id: ID! history: Int }",
        "Plant.history",
        '"history" is a field of the API: the document\'s versions',
        'rename it: plantHistory: Int @stored(as: "history")',
    ),
]


@pytest.mark.parametrize(("text", "subject", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], text: str, subject: str, problem: str, mend: str
) -> None:
    """The error names the marked line, the type and field, the problem and its fix."""
    error = mistake(text.replace("payment: Payment", "note: String payment: Payment"))
    assert (error.subject, error.problem, error.mend) == (subject, problem, mend)


def test_a_union_has_the_fields_that_all_members_have() -> None:
    """The discriminator is the first field of each; an interface adds its own."""
    model = read_model(
        """
        type Order @collection(name: "orders")
          @index(fields: ["contact.person.age", "contact.type"])
          @access(rows: "{ contact: { person: { age: { gt: 1 } }, type: { ne: null } } }") {
          id: ID! contact: Contact! all: [Contact!]
        }
        interface Contact @discriminator(field: "type", storedAs: "_class") @access(read: ["a"]) {
          name: String! @stored(as: "n")
        }
        type Person implements Contact @variant(value: "shop.Person") {
          "How old."
          age: Int
          "Spoken."
          name: String!
        }
        type Nobody implements Contact { name: String! }
        """
    )
    contact, person, nobody = map(model.embedded, ("Contact", "Person", "Nobody"))
    discriminator = Discriminator(
        name="type",
        stored="_class",
        members=(
            UnionMember(type="Person", key="person", value="shop.Person"),
            UnionMember(type="Nobody", key="nobody", value="Nobody"),
        ),
    )
    assert contact.discriminator == discriminator
    assert [each.discriminator for each in model.entities[0].fields] == [
        None,
        discriminator,
        discriminator,
    ]
    kind, name = contact.fields
    assert (kind.name, kind.stored, kind.required, kind.constant) == ("type", "_class", True, None)
    assert kind.description == "The type of the document: shop.Person, Nobody."
    assert name.stored == "n"
    assert nobody.fields == (replace(kind, constant="Nobody"), name)
    assert [(each.name, each.stored) for each in person.fields] == [
        ("type", "_class"),
        ("age", "age"),
        ("name", "n"),
    ]
    assert person.fields[2].description == "Spoken."
    assert model.entities[0].indexes[0].fields == ("contact.age", "contact._class")
    assert model.variants(contact) == (contact, person, nobody)
    assert model.variant(contact, {"_class": "Nobody"}) is nobody
    assert model.variant(contact, {"_class": 1}) is contact


def test_members_of_an_entity_share_its_collection() -> None:
    """The entity has their further fields; references and fields of the interface are in each."""
    model = read_model(
        """
        interface Animal @collection(name: "animals", version: null) @discriminator(field: "kind")
          @index(fields: ["dog.breed", "kind"]) {
          id: ObjectID! name: String @unique ownerId: ID owner: Person @reference(by: "ownerId")
        }
        type Dog implements Animal @variant(value: "dog") {
          id: ObjectID! name: String ownerId: ID owner: Person breed: Int
        }
        type Cat implements Animal { id: ObjectID! name: String ownerId: ID owner: Person }
        type Person @collection(name: "people") {
          id: UUID! animals: [Animal!]! @referencedBy(field: "ownerId")
        name: String }
        """
    )
    animal = model.entity("Animal")
    assert [each.name for each in model.entities] == ["Animal", "Person"]
    assert [each.name for each in model.members] == ["Dog", "Cat"]
    assert [each.name for each in animal.member_fields] == ["breed"]
    assert [each.fields for each in animal.indexes] == [("breed", "kind"), ("name",)]
    dog, cat = model.members
    assert (dog.collection, dog.singular, dog.plural) == ("animals", "animal", "animals")
    assert [each.name for each in dog.fields] == ["id", "kind", "name", "ownerId", "breed"]
    assert dog.fields[1].constant == "dog"
    assert dog.fields[3] == animal.fields[3]
    assert dog.references == animal.references == cat.references
    assert model.variants(animal) == (animal, dog, cat)
    assert model.variant(animal, {"kind": "Cat"}) is cat


@pytest.mark.parametrize("declared", ["ID", "ObjectID"])
def test_members_store_the_ids_of_a_back_reference_alike(declared: str) -> None:
    """Only the owner names the field, which is that of the interface."""
    model = read_model(
        f"""
        interface Pet @collection(name: "pets") @discriminator(field: "kind") {{
          id: ID! ownerId: {declared} }}
        type Bird implements Pet {{ id: ID! ownerId: {declared} }}
        type Owner @collection(name: "owners") {{ id: ObjectID! name: String
          pets: [Pet!]! @referencedBy(field: "ownerId") }}
        """
    )
    for type_ in (model.entity("Pet"), model.member("Bird")):
        field = type_.field("ownerId")
        assert field is not None
        assert (field.type, field.stored_scalar) == (Scalar.ID, Scalar.OBJECTID)
