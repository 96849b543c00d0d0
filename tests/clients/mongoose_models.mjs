// Models of Mongoose in all of its habits, and documents that it writes with them.
import mongoose from 'mongoose';

const { Schema } = mongoose;
const { ObjectId, Decimal128, UUID, Int32, Double } = Schema.Types;

const address = new Schema(
  { street: { type: String, required: true }, zip: String, kind: { type: String, enum: ['home', 'at-work', null] } },
  { _id: false },
);
const user = new Schema(
  {
    email: { type: String, required: true, unique: true },
    role: { type: String, enum: ['admin', 'read-only'], default: 'read-only' },
    address,
    addresses: [address],
    balance: Decimal128,
    points: Number,
    visits: Int32,
    total: BigInt,
    ratio: Double,
    born: { type: Date, required: true },
    name: { first: { type: String, required: true }, last: String },
    friends: [{ type: ObjectId, ref: 'User' }],
    boss: { type: ObjectId, ref: 'User', index: true },
    employer: { type: String, ref: 'Company' },
    active: { type: Boolean, default: true },
  },
  { timestamps: true },
);
user.index({ 'name.last': 1, born: 1 }, { unique: true });
const Company = mongoose.model(
  'Company',
  new Schema({ _id: String, name: String }, { collection: 'firms', versionKey: false, timestamps: { createdAt: 'made', updatedAt: false } }),
);
const User = mongoose.model('User', user);
const Category = mongoose.model('Category', new Schema({ _id: Number, title: String, parent: { type: Number, ref: 'Category' } }));
const Product = mongoose.model(
  'Product',
  new Schema({
    sku: { type: String, unique: true, required: true },
    price: { type: Decimal128, required: true },
    tags: { type: [String], required: true },
    categories: { type: [Number], ref: 'Category' },
    owner: { type: ObjectId, ref: User },
    attributes: { type: Map, of: String },
  }),
);
const Order = mongoose.model(
  'Order',
  new Schema({
    buyer: { type: ObjectId, ref: 'User', required: true },
    lines: [{ product: { type: ObjectId, ref: 'Product', required: true }, quantity: { type: Number, default: 1 } }],
    seller: { type: ObjectId, refPath: 'sellerKind' },
    sellerKind: { type: String, enum: ['User', 'Company'] },
  }),
);
const Event = mongoose.model('Event', new Schema({ at: Date, size: Number }, { discriminatorKey: 'kind' }));
const Click = Event.discriminator('Click', new Schema({ url: { type: String, required: true } }));
const Signup = Event.discriminator('Signup', new Schema({ user: { type: ObjectId, ref: 'User' } }));
const part = new Schema({ name: { type: String, required: true } }, { discriminatorKey: 'shape', _id: false });
const drawing = new Schema({ parts: [part] });
drawing.path('parts').discriminator('Circle', new Schema({ radius: Number, copies: [ObjectId] }, { _id: false }));
const Drawing = mongoose.model('Drawing', drawing);
const Upload = mongoose.model('Upload', new Schema({ _id: { type: UUID, default: () => crypto.randomUUID() }, data: Buffer, keys: [UUID] }));
const Page = mongoose.model('Page', new Schema({ body: {}, matrix: [[Number]], anything: [], file: { type: UUID, ref: 'Upload' } }));
const Counter = mongoose.model('Counter', new Schema({ value: Number, either: { type: Schema.Types.Union, of: [Number, String] } }, { collection: 'sequence_counters' }));

export async function write(uri, dbName) {
  await mongoose.connect(uri, { dbName });
  const firm = await Company.create({ _id: 'acme', name: 'Acme' });
  const users = [];
  for (let n = 0; n < 30; n++) {
    users.push(
      await User.create({
        email: `u${n}@example.org`,
        address: n % 3 ? { street: `S ${n}`, kind: 'at-work' } : undefined,
        addresses: Array.from({ length: n % 3 }, (_, m) => ({ street: `S ${m}`, kind: m ? 'home' : null })),
        balance: n % 2 ? `${n}.50` : undefined,
        points: n % 2 ? n : n + 0.5,
        total: BigInt(n) * 1000000000000n,
        born: new Date(Date.UTC(1980 + n, 1, 1)),
        name: { first: `F ${n}`, last: n % 5 ? `L ${n}` : undefined },
        friends: users.slice(-2).map((each) => each._id),
        boss: users[0],
        employer: firm._id,
      }),
    );
  }
  await Category.insertMany([1, 2, 3].map((n) => ({ _id: n, title: `T ${n}`, parent: n > 1 ? 1 : null })));
  const products = await Product.insertMany(
    users.map((owner, n) => ({ sku: `s${n}`, price: '9.90', tags: ['a', 'b'], categories: [1 + (n % 3)], owner, attributes: { [`k${n}`]: 'v' } })),
  );
  await Order.insertMany(
    users.map((buyer, n) => ({ buyer, lines: products.slice(n, n + 2).map((product) => ({ product, quantity: n })), seller: users[0], sellerKind: 'User' })),
  );
  await Event.create({ at: new Date(), size: 1 });
  await Click.create({ at: new Date(), url: '/', size: 2.5 });
  await Signup.create({ user: users[1] });
  await Drawing.create({ parts: [{ name: 'a' }, { name: 'b', shape: 'Circle', radius: 2 }] });
  const upload = await Upload.create({ data: Buffer.from('x'), keys: [crypto.randomUUID()] });
  await Page.create({ body: { a: [1, 'x'] }, matrix: [[1, 2], [3.5]], anything: [1, 'a', {}], file: upload._id });
  await Page.create({ body: 'text' });
  await Counter.insertMany([{ value: 1, either: 5 }, { value: 2 ** 40, either: 'x' }]);
  await mongoose.disconnect();
}
