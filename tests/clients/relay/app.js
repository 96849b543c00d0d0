// What an application that uses Relay writes: relay-compiler reads it, and nothing runs it.
import { graphql } from "relay-runtime";

graphql`
  query appGoodsQuery($count: Int!, $cursor: String) {
    ...appGoods_list @arguments(count: $count, cursor: $cursor)
    reading(id: "1") {
      value
    }
  }
`;

graphql`
  fragment appGoods_list on Query
  @argumentDefinitions(count: { type: "Int" }, cursor: { type: "String" })
  @refetchable(queryName: "appGoodsPageQuery") {
    products(first: $count, after: $cursor) @connection(key: "app_products") {
      edges {
        node {
          documentId
          name
          stock
          ...appProduct_details
        }
      }
    }
  }
`;

graphql`
  fragment appProduct_details on Product @refetchable(queryName: "appProductDetailsQuery") {
    name
    version
    history(first: 5) {
      nodes {
        documentId
        stateId
        version
        document {
          stateId
          name
        }
      }
    }
  }
`;

graphql`
  subscription appGoodsSubscription($after: ResumeToken) {
    productChanges(after: $after) {
      kind
      resumeToken
      product {
        name
        stock
      }
    }
  }
`;

graphql`
  mutation appRenameMutation($id: ID!, $name: String!) {
    updateProduct(id: $id, patch: { name: $name }, expectedVersion: 1) {
      __typename
      ... on ProductWritten {
        product {
          name
        }
      }
      ... on WriteError {
        message
      }
    }
  }
`;
