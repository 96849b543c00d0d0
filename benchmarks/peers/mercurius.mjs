// The benchmarks' shop on Fastify with Mercurius: compiled queries, suppliers loaded in batches, one
// change stream for all subscriptions. It answers to the documents that revstream is asked.
//
// node mercurius.mjs URI DATABASE; says `serving` with its address.
import Fastify from 'fastify'
import { GraphQLScalarType } from 'graphql'
import mercurius from 'mercurius'
import { MongoClient } from 'mongodb'

const [uri, name] = process.argv.slice(2)
const client = await new MongoClient(uri).connect()
const products = client.db(name).collection('products')
const suppliers = client.db(name).collection('suppliers')

const schema = `
  scalar DateTime

  type Query {
    product(id: ID!): Product
    products(where: ProductWhere, first: Int = 20): ProductConnection!
    byStock(below: Float): [StockGroup!]!
    byWeek: [WeekGroup!]!
  }

  type StockGroup { key: Int!, count: Int!, result: Float! }
  type WeekGroup { key: DateTime!, count: Int!, result: Float! }

  type Subscription {
    productChanges(id: ID, where: ProductWhere): ProductChange!
  }

  input ProductWhere { stock: IntFilter, shelf: IntFilter, supplier: SupplierWhere }
  input SupplierWhere { name: StringFilter }
  input IntFilter { lt: Int }
  input StringFilter { lt: String }

  type ProductConnection { nodes: [Product!]! }
  type ProductChange { product: Product }

  type Product {
    id: ID!
    version: Int!
    sku: String!
    name: String!
    price: Float!
    stock: Int!
    shelf: Int!
    tags: [String!]!
    supplier: Supplier
    description: String!
    updatedAt: DateTime!
  }

  type Supplier { id: ID!, name: String! }
`

const conditions = async ({ supplier, ...where } = {}) => {
  const found = Object.entries(where).map(([field, { lt }]) => [field, { $lt: lt }])
  if (supplier) {
    const rows = await suppliers.find({ name: { $lt: supplier.name.lt } }).project({ _id: 1 }).toArray()
    found.push(['supplierId', { $in: rows.map(each => each._id) }])
  }
  return Object.fromEntries(found)
}

const grouped = async (match, key, result) => {
  const group = { _id: key, count: { $sum: 1 }, result }
  const pipeline = [{ $match: match }, { $group: group }, { $sort: { _id: 1 } }]
  const found = await products.aggregate(pipeline).toArray()
  return found.map(({ _id, ...results }) => ({ key: _id, ...results }))
}
const week = { $dateTrunc: { date: '$updatedAt', unit: 'week', startOfWeek: 'monday' } }

const resolvers = {
  DateTime: new GraphQLScalarType({ name: 'DateTime', serialize: at => at.toISOString() }),
  Query: {
    product: (_, { id }) => products.findOne({ _id: Number(id) }),
    products: async (_, { where, first }) => ({
      nodes: await products.find(await conditions(where)).sort({ _id: 1 }).limit(first).toArray()
    }),
    byStock: (_, { below }) =>
      grouped(below === undefined ? {} : { price: { $lt: below } }, '$stock', { $sum: '$price' }),
    byWeek: () => grouped({}, week, { $avg: '$price' })
  },
  Subscription: {
    productChanges: {
      subscribe: (root, args, context, info) => {
        if (args.id) return context.pubsub.subscribe(`product/${args.id}`)
        const all = (_root, _args, { pubsub }) => pubsub.subscribe('products')
        if (!args.where) return all(root, args, context)
        const bounds = Object.entries(args.where)
        const matches = product => bounds.every(([field, { lt }]) => product[field] < lt)
        return mercurius.withFilter(all, matches)(root, args, context, info)
      },
      resolve: product => ({ product })
    }
  },
  Product: { id: ({ _id }) => _id },
  Supplier: { id: ({ _id }) => _id }
}

const loaders = {
  Product: {
    async supplier (queries) {
      const ids = queries.map(({ obj }) => obj.supplierId)
      const found = await suppliers.find({ _id: { $in: [...new Set(ids)] } }).toArray()
      const byId = new Map(found.map(each => [each._id, each]))
      return ids.map(id => byId.get(id))
    }
  }
}

const app = Fastify()
app.register(mercurius, { schema, resolvers, loaders, jit: 1, subscription: true })
await app.ready()

const { pubsub } = app.graphql
const changes = products.watch([], { fullDocument: 'updateLookup' })
changes.on('change', ({ fullDocument: payload }) => {
  if (!payload) return
  pubsub.publish({ topic: 'products', payload })
  pubsub.publish({ topic: `product/${payload._id}`, payload })
})

const address = await app.listen({ port: 0, host: '127.0.0.1' })
console.log(JSON.stringify({ event: 'serving', address }))

process.on('SIGTERM', async () => {
  await changes.close()
  await client.close()
  process.exit()
})
